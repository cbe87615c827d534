"""Placement: where to go on in a partition, or why not at all."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ingestor.breaker import Breaker
from ingestor.committer import Committer, make_patience
from ingestor.errors import ConfigError, DataLossError, RefusedError, Unavailable
from ingestor.guards import Guards
from ingestor.ledger import DEFAULT_TEMPLATE, KDI_TEMPLATE, AppIds, Gap, Placement
from ingestor.placement import Placer, first_positions
from ingestor.put import Occ
from ingestor.records import TopicPartition
from tests.support.fakes.kafka import FakeKafka
from tests.support.fakes.staging import stage
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.table import FakeLog, FakeTable
from tests.support.fakes.worker import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Desk:
    """A placer with a Kafka of one topic, twenty records in each of its two partitions, and an empty table."""

    def __init__(self, *, skip_lost: bool = False, template: str = DEFAULT_TEMPLATE) -> None:
        self.kafka = FakeKafka({"a": 2})
        for tp in (A0, A1):
            self.kafka.produce(tp, [b"v"] * 20)
        self.log = FakeLog()
        self.storage = MemoryStorage()
        self.before: dict[str, Callable[[], None]] = {}
        clock = FakeClock()
        patience = make_patience(
            max_retries=1,
            base_seconds=1,
            max_seconds=1,
            jitter=0,
            breaker=Breaker(failures=3, open_seconds=1, successes=1, clock=clock),
            sleep=clock.advance,
            rng=random.Random(0),
        )
        ids = AppIds(template, "app", ("a",))
        table = FakeTable(self.log, self.storage, hook=lambda call: self.before.pop(call, lambda: None)())
        committer = Committer(table, Guards("route", "memory", ids), occ=Occ(1, 1, 1), patience=patience, clock=clock)
        self.placer = Placer("route", "memory", committer, self.kafka, skip_lost=skip_lost)

    def land(self, txns: dict[str, int], *rows: tuple[TopicPartition, int], topic_id: str | None = None) -> None:
        files = stage(self.storage, rows).files if rows else ()
        origins = {f"ingestor:origin/{app_id}/a/{topic_id}/": 0 for app_id in txns if topic_id is not None}
        FakeTable(self.log, self.storage).attempt(files, txns | origins, {"commit_id": "c"})

    def place(self, tp: TopicPartition = A0) -> Placement:
        return self.placer.place([tp]).placements[tp]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def skipping() -> Desk:
    return Desk(skip_lost=True)


def test_a_partition_goes_on_after_its_txn(desk: Desk) -> None:
    """The next offset; 0 and -1 are txns like any other."""
    for txn in (-1, 0, 7, 19):
        desk.log.write_foreign({"app/a/0": txn})
        assert desk.place() == Placement(txn + 1, txn + 1)


def test_a_partition_without_a_txn_begins_at_its_first_record(desk: Desk) -> None:
    """At the low watermark, which need not be 0; that is no loss, for nothing was promised."""
    assert desk.place() == Placement(0, 0)
    desk.kafka.retain_from(A0, 5)
    assert desk.place() == Placement(5, 5)


def test_all_partitions_are_placed_by_one_look(desk: Desk) -> None:
    """With the txns that they build on and the ids of their topics."""
    desk.land({"app/a/0": 4})
    placed = desk.placer.place([A0, A1])
    assert placed.txns == {A0: 4, A1: None}
    assert placed.placements == {A0: Placement(5, 5), A1: Placement(0, 0)}
    assert placed.topic_ids == desk.kafka.topic_ids(["a"])


def test_the_txn_is_the_newest_one(desk: Desk) -> None:
    """Not that of the handle's last look."""
    desk.place()
    desk.land({"app/a/0": 9})
    assert desk.place().position == 10


LOST = [
    ("retention", lambda desk: desk.kafka.retain_from(A0, 8), Placement(8, 8, Gap(A0, 5, 7, "retention"))),
    (
        "truncated",
        lambda desk: desk.log.write_foreign({"app/a/0": 24}),
        Placement(25, 20, Gap(A0, 20, 24, "truncated")),
    ),
    ("recreated", lambda desk: desk.kafka.add_topic("a", 2), Placement(5, 0, Gap(A0, 0, 4, "recreated"))),
]


@pytest.mark.parametrize(("reason", "lose", "expected"), LOST, ids=[reason for reason, _, _ in LOST])
def test_loss_is_refused_or_declared(reason: str, lose: Callable[[Desk], None], expected: Placement) -> None:
    """Under `fail` nothing is placed and the message names the offsets; under `skip` the gap says what is lost."""
    for skip_lost in (False, True):
        desk = Desk(skip_lost=skip_lost)
        desk.land({"app/a/0": 4}, topic_id=desk.kafka.topic_ids(["a"])["a"])
        lose(desk)
        if skip_lost:
            assert desk.place() == expected
            continue
        with pytest.raises(DataLossError, match=reason) as lost:
            desk.place()
        assert lost.value.exit_code == 3
        assert str(expected.gap) in lost.value.message


def test_a_txn_right_at_the_watermarks_has_lost_nothing(desk: Desk) -> None:
    """The next offset is the low one, or the one that will be written next."""
    desk.land({"app/a/0": 4, "app/a/1": 19})
    desk.kafka.retain_from(A0, 5)
    assert desk.place(A0) == Placement(5, 5)
    assert desk.place(A1) == Placement(20, 20)


def test_a_recreated_topic_with_more_records_is_noticed(skipping: Desk) -> None:
    """Offsets can't tell; the topic's id can. Its offsets up to the txn are taken: those records are lost."""
    skipping.land({"app/a/0": 4}, topic_id=skipping.kafka.topic_ids(["a"])["a"])
    skipping.kafka.add_topic("a", 2)
    skipping.kafka.produce(A0, [b"new"] * 50)
    assert skipping.place() == Placement(5, 5, Gap(A0, 0, 4, "recreated"))


@pytest.mark.parametrize("known", [None, "unknown now"])
def test_an_unknown_topic_id_is_no_finding(desk: Desk, monkeypatch: pytest.MonkeyPatch, known: str | None) -> None:
    """Neither when the log does not tell it nor when the broker does not."""
    desk.land({"app/a/0": 4}, topic_id=known)
    monkeypatch.setattr(desk.kafka, "topic_ids", lambda _topics: {})
    assert desk.place() == Placement(5, 5)


def test_many_losses_are_told_in_a_few_words() -> None:
    """The first three partitions, and that there are more."""
    desk = Desk()
    desk.kafka.add_topic("wide", 9)
    tps = [TopicPartition("wide", number) for number in range(9)]
    desk.land({f"app/wide/{number}": 10 for number in range(9)})
    with pytest.raises(DataLossError, match="…") as lost:
        desk.placer.place(tps)
    assert lost.value.message.count("truncated") == 3


# --- the wrong app id ---


def test_rows_without_a_txn_of_ours_are_refused(desk: Desk) -> None:
    """Somebody wrote them, and reading again would double them."""
    desk.land({}, (A0, 0))
    with pytest.raises(ConfigError, match="a:0 without a txn action") as refused:
        desk.place()
    assert refused.value.exit_code == 2
    assert "--set a:0=OFFSET" in refused.value.hint


@pytest.mark.parametrize("app_id", ["old/a/0", "some-app-0"])
def test_txns_of_another_app_id_are_refused(app_id: str) -> None:
    """Also of kafka-delta-ingest's making; both ways out are named."""
    desk = Desk()
    desk.land({app_id: 11})
    with pytest.raises(ConfigError, match=f"under txn app id '{app_id}'") as refused:
        desk.place()
    assert "app_id" in refused.value.hint
    assert "--set" in refused.value.hint


def test_kdis_own_table_is_continued_under_its_template() -> None:
    """That is what the template is for."""
    desk = Desk(template=KDI_TEMPLATE)
    desk.land({"app-0": 11}, (A0, 11))
    assert desk.place() == Placement(12, 12)


def test_a_txn_of_ours_settles_it_once_a_person_took_over(desk: Desk) -> None:
    """Not before: two app ids that both go on would each land every record."""
    desk.land({"old/a/0": 11, "app/a/0": 11}, (A0, 11))
    with pytest.raises(ConfigError, match="old/a/0"):
        desk.place()
    desk.land({"ingestor:adopted/app%2Fa%2F0/old%2Fa%2F0/": 11})
    assert desk.place() == Placement(12, 12)


def test_a_removal_that_nobody_answered_for_stops_the_placement(desk: Desk) -> None:
    """Before a record is read, at every start."""
    desk.land({"app/a/0": 4}, (A0, 4))
    desk.log.overwrite()
    for _ in range(2):
        with pytest.raises(RefusedError, match="log entry 2"):
            desk.place()


def test_other_partitions_of_the_table_are_no_obstacle(desk: Desk) -> None:
    """A new partition of a table that is ours in other parts."""
    desk.land({"app/a/0": 0, "other-app": 3, "old/b/0": 1}, (A0, 0))
    assert desk.place(A1) == Placement(0, 0)


def test_a_member_that_has_just_begun_is_waited_for(desk: Desk) -> None:
    """Its rows landed between our two looks: no wrong app id, ask again."""
    desk.before["holding"] = lambda: desk.land({"app/a/0": 2}, (A0, 2))
    with pytest.raises(Unavailable):
        desk.place()
    assert desk.place() == Placement(3, 3)


# --- first positions ---

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def first(
    start: str | datetime,
    topics: list[str] | None = None,
    *,
    explicit: bool = True,
    first_run: bool = True,
    known: dict[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    desk = Desk()
    desk.kafka.begin(A1)
    desk.kafka.produce(A1, [b"open"] * 3)
    desk.kafka.produce(A0, [b"late"], timestamp_ms=int(MOMENT.timestamp() * 1000))
    desk.kafka.produce(A0, [b"later"], timestamp_ms=int(MOMENT.timestamp() * 1000) + 5)
    return first_positions(
        topics or ["a"],
        explicit=explicit,
        start=start,
        known=known or {},
        first_run=first_run,
        cluster=desk.kafka,
    )


def test_earliest_needs_no_first_positions() -> None:
    """A partition without a txn is read from its start anyway."""
    assert first("earliest") == {}


def test_latest_begins_at_the_end_of_what_is_committed() -> None:
    """An open transaction is still to come: its records are read once they are committed."""
    assert first("latest") == {A0: 21, A1: 19}


def test_a_time_begins_at_its_first_record_or_at_the_end() -> None:
    """The record at that very time is the first to be read."""
    assert first(MOMENT) == {A0: 19, A1: 19}


def test_an_empty_partition_gets_a_txn_too() -> None:
    """-1: otherwise its head would be skipped as what was there, or a later start would count as its first."""
    desk = Desk()
    desk.kafka.add_topic("empty", 1)
    found = first_positions(["empty"], explicit=True, start="latest", known={}, first_run=True, cluster=desk.kafka)
    assert found == {TopicPartition("empty", 0): -1}


def test_a_topic_that_is_not_there_yet_gets_a_marker() -> None:
    """When it appears, it is read from its start, also under `latest`."""
    assert first("latest", ["later"]) == {TopicPartition("later", 0): -1}
    assert first("latest", ["later"], explicit=False) == {}


def test_topics_that_were_begun_are_left_alone() -> None:
    """A partition that appears later is read from its start."""
    assert first("latest", known={A0: 3}) == {}
    assert first("latest", known={TopicPartition("other", 0): 3}, first_run=False) == {A0: 21, A1: 19}


def test_a_regex_sets_positions_on_the_first_run_only() -> None:
    """A topic that matches later did appear later."""
    assert first("latest", explicit=False) == {A0: 21, A1: 19}
    assert first("latest", explicit=False, first_run=False) == {}
