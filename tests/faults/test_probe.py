"""The probe at the start: a store that gives a log entry two winners is refused, before anything is written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingestor import probe as probing
from ingestor.errors import RefusedError, Unavailable
from ingestor.probe import probe
from tests.support.faultproxy import Fault, FaultProxy, Kind
from tests.support.s3_commits import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stores import CarelessStore, Store

pytestmark = pytest.mark.faults


def test_a_store_with_conditional_put_passes(store: Store, bucket: str) -> None:
    """And nothing is left of the probe."""
    probe(store.url(bucket), store.storage_options)
    assert store.objects(bucket) == {}


def test_a_store_that_ignores_conditions_is_refused(careless: CarelessStore) -> None:
    """With exit code 4, and the reason."""
    bucket = careless.make_bucket()
    with pytest.raises(RefusedError, match="no conditional PUT: 2 of 2 writers were told") as refused:
        probe(careless.url(bucket), careless.storage_options)
    assert refused.value.exit_code == 4
    assert "If-None-Match" in refused.value.hint
    assert careless.objects(bucket) == {}


def test_it_is_caught_each_of_ten_times(careless: CarelessStore) -> None:
    """With all of its rounds, for one may pass without the two meeting."""
    bucket = careless.make_bucket()
    for _ in range(10):
        with pytest.raises(RefusedError):
            probe(careless.url(bucket), careless.storage_options)


def test_one_round_catches_two_that_meet(careless: CarelessStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time: neither entry lands before the other writer has looked."""
    monkeypatch.setattr(probing, "_ROUNDS", 1)
    bucket = careless.make_bucket()
    with FaultProxy(careless.port) as proxy:
        proxy.on("PUT", "_delta_log/.*1.json", Fault(Kind.DELAY, seconds=0.5), times=None)
        for _ in range(10):
            with pytest.raises(RefusedError, match="2 of 2 writers were told"):
                probe(careless.url(bucket), careless.options(proxy.url))


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


def test_a_local_disk_needs_no_probe(tmp_path: Path) -> None:
    """Nothing is touched."""
    probe(str(tmp_path / "table"), {})
    assert list(tmp_path.iterdir()) == []
