"""The probe at the start: a store that gives a log entry two winners is refused, before anything is written to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Schema

from ingestor.delta import probe as probing
from ingestor.delta.open import options_for
from ingestor.delta.probe import WRITERS, Probed, probe
from ingestor.delta.table_log import TableLog
from ingestor.errors import RefusedError, Unavailable
from ingestor.records import RawSchema
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.racy_stores import RacyStoreUnavailableError, S3MockStore, S3sStore, TwoStepStore
from tests.support.stores.s3_commits import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.stores.stores import CarelessStore, Store

pytestmark = pytest.mark.faults

REGISTRY_STORES = (S3sStore, S3MockStore)
STARTS = 20


@pytest.fixture(scope="module")
def two_steps() -> Iterator[TwoStepStore]:
    with TwoStepStore() as store:
        yield store


@pytest.fixture(params=REGISTRY_STORES, ids=lambda kind: kind.name)
def racy(request: pytest.FixtureRequest) -> Iterator[Store]:
    try:
        store = request.param()
    except RacyStoreUnavailableError as error:
        pytest.skip(str(error))
    with store:
        yield store


def test_a_store_with_conditional_put_passes(store: Store, bucket: str) -> None:
    """And nothing is left of the probe."""
    probe(store.url(bucket), store.storage_options)
    assert store.objects(bucket) == {}


def test_a_store_that_ignores_conditions_is_refused(careless: CarelessStore) -> None:
    """With exit code 4, and the reason."""
    bucket = careless.make_bucket()
    with pytest.raises(RefusedError, match=r"no conditional PUT: [234] of 4 writers were told") as refused:
        probe(careless.url(bucket), careless.storage_options)
    assert refused.value.exit_code == 4
    assert "If-None-Match" in refused.value.hint
    assert careless.objects(bucket) == {}


def test_it_is_caught_each_of_ten_times(careless: CarelessStore) -> None:
    """With all of its rounds, for one may pass without the writers meeting."""
    bucket = careless.make_bucket()
    for _ in range(10):
        with pytest.raises(RefusedError):
            probe(careless.url(bucket), careless.storage_options)


def test_a_store_that_checks_and_then_writes_is_refused_at_each_start(two_steps: TwoStepStore) -> None:
    """With three rounds of two writers one start in eight got through, and a supervisor tries again until it does."""
    bucket = two_steps.make_bucket()
    for _ in range(STARTS):
        with pytest.raises(RefusedError, match=r"no conditional PUT: [234] of 4 writers were told"):
            probe(two_steps.url(bucket), two_steps.storage_options)
    assert two_steps.objects(bucket) == {}


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_stores_from_registries_that_check_and_then_write_are_refused_at_each_start(racy: Store) -> None:
    """However often they are started."""
    bucket = racy.make_bucket()
    for _ in range(STARTS):
        with pytest.raises(RefusedError, match=r"no conditional PUT: [234] of 4 writers were told"):
            probe(racy.url(bucket), racy.storage_options)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_how_often_such_stores_pass_a_round(racy: Store) -> None:
    """What the docstring of the probe reckons with."""
    url = racy.url(racy.make_bucket())
    options = options_for(url, racy.storage_options)
    handle = DeltaTable.create(url, Schema.from_arrow(RawSchema().table), storage_options=options)
    log = TableLog(url, RawSchema(), options, handle)
    passed = 0
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in range(100):
            try:
                probing._race(log, pool, url)
                passed += 1
            except RefusedError:
                pass
    print(f"{racy.name}: {passed} of 100 rounds of {WRITERS} writers had one winner")  # noqa: T201
    assert passed <= 60  # the probe reckons with 56; each count may be off by ten


def test_one_round_catches_those_that_meet(careless: CarelessStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time: no entry lands before the other writers have looked."""
    monkeypatch.setattr(probing, "ROUNDS", 1)
    bucket = careless.make_bucket()
    with FaultProxy(careless.port) as proxy:
        proxy.on("PUT", "_delta_log/.*1.json", Fault(Kind.DELAY, seconds=0.5), times=None)
        for _ in range(10):
            with pytest.raises(RefusedError, match="4 of 4 writers were told"):
                probe(careless.url(bucket), careless.options(proxy.url))


def test_a_store_is_probed_once_in_a_process(store: Store, bucket: str, proxy: FaultProxy) -> None:
    """Routes share it; one that was refused is probed again."""
    probed = Probed({**store.options(proxy.url), **QUICK})
    proxy.refuse()
    with pytest.raises(Unavailable):
        probed.probe(store.url(bucket, "one"), opened=False)
    proxy.heal()
    probed.probe(store.url(bucket, "one"), opened=False)
    requests = len(proxy.seen)
    probed.probe(store.url(bucket, "two"), opened=False)
    assert len(proxy.seen) == requests
    print(f"{requests} requests")  # noqa: T201
    probed.probe(store.url(store.make_bucket()), opened=False)
    assert len(proxy.seen) > requests


def test_a_store_that_knows_no_conditions_is_refused(store: Store, bucket: str, proxy: FaultProxy) -> None:
    """Some say so."""
    fault = Fault(Kind.STATUS_BEFORE, status=501, code="NotImplemented")
    proxy.on("PUT", "_delta_log/.*1.json", fault, times=None)
    with pytest.raises(RefusedError, match="can't do what is needed"):
        probe(store.url(bucket), {**store.options(proxy.url), **QUICK})


def test_a_store_that_is_not_there_is_waited_for(store: Store, bucket: str, proxy: FaultProxy) -> None:
    """It may be another one tomorrow, but it is no reason to refuse today."""
    proxy.refuse()
    with pytest.raises(Unavailable, match="probing the store"):
        probe(store.url(bucket), {**store.options(proxy.url), **QUICK})


def test_lost_answers_are_no_reason_to_refuse(store: Store, bucket: str, proxy: FaultProxy) -> None:
    """The entry has an owner, though nobody was told."""
    proxy.on("PUT", "_delta_log/.*[123].json", Fault(Kind.RESET_AFTER), times=2)
    probe(store.url(bucket), {**store.options(proxy.url), **QUICK})
    assert proxy.hits == 2


def test_a_bucket_that_may_not_be_written_is_refused(store: Store, bucket: str, proxy: FaultProxy) -> None:
    """With the reason that the store gives."""
    proxy.on("PUT", "", Fault(Kind.STATUS_BEFORE, status=403), times=None)
    with pytest.raises(RefusedError, match="access is denied"):
        probe(store.url(bucket), {**store.options(proxy.url), **QUICK})


def test_a_local_disk_keeps_nothing_of_the_probe(tmp_path: Path) -> None:
    """Where the table is, or where it will be made."""
    for table in (tmp_path, tmp_path / "to" / "be" / "made"):
        probe(str(table), {})
        assert list(tmp_path.iterdir()) == []
