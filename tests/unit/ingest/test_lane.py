"""The lane: positions, the open draft, the one batch that is landing, and what becomes of them when things go wrong."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from ingestor.config.settings import FlushSettings
from ingestor.errors import Fenced, OccExhaustedError, RefusedError
from ingestor.ingest import lane as lane_module
from ingestor.ingest.budget import Budget
from ingestor.ingest.committer import Landed
from ingestor.ingest.lane import Lane, Progress
from ingestor.ingest.policy import FlushReason
from ingestor.ingest.put import Outcome
from ingestor.ledger import Gap
from ingestor.records import RawSchema, TopicPartition
from tests.support.fakes.kafka import FakeRecord
from tests.support.fakes.source import columns_of
from tests.support.fakes.storage import MemoryStorage
from tests.support.fakes.worker import FakeClock, ManualWorker, SteppedFutures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ingestor.ingest.buffer import Selection
    from ingestor.ingest.stager import Staged

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NEVER = FlushSettings(rows=1_000_000, bytes=1 << 40, seconds=604_800)


class Desk:
    """A lane whose workers a test runs, and whose landings it decides."""

    def __init__(self, limits: FlushSettings = NEVER) -> None:
        self.clock = FakeClock()
        self.today = date(2026, 1, 31)
        self.storage = MemoryStorage()
        self.encoder, self.store = ManualWorker(), ManualWorker()
        self.budget = Budget(1 << 40)
        self.landed: list[Staged] = []
        self.infos: list[Mapping[str, Any]] = []
        self.answers: list[BaseException] = []
        self.lane = Lane(
            "route",
            schema=RawSchema(),
            storage=lambda: self.storage,
            limits=limits,
            compression="zstd",
            land=self._land,
            encoder=self.encoder,
            store=self.store,
            budget=self.budget,
            clock=self.clock,
            today=lambda: self.today,
        )

    def _land(self, staged: Staged, info: Mapping[str, Any]) -> Landed:
        if self.answers:
            raise self.answers.pop(0)
        self.landed.append(staged)
        self.infos.append(info)
        return Landed(len(self.landed), Outcome.LANDED, 0, 0.0)

    def place(self, *tps: TopicPartition, txn: int | None = None) -> None:
        for tp in tps:
            self.lane.place(tp, txn=txn, position=0 if txn is None else txn + 1)

    def accept(self, *rows: tuple[TopicPartition, int]) -> Selection:
        return self.lane.accept(columns_of([(tp, FakeRecord(offset, b"v")) for tp, offset in rows]))

    def work(self) -> None:
        while self.encoder.run() or self.store.run():
            pass

    def flush(self, seconds: float = 10) -> Progress:
        ends_at = self.clock() + seconds
        return self.lane.flush_and_wait(FlushReason.REVOKED, lambda: ends_at - self.clock())


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def waiting(desk: Desk) -> Iterator[None]:
    """Let the workers run while the lane waits."""
    stepped = SteppedFutures(lambda: bool(desk.encoder.run(1) or desk.store.run(1)), desk.clock)
    with mock.patch.object(lane_module, "futures", stepped):
        yield


def test_records_move_the_position_and_wait_in_the_draft(desk: Desk) -> None:
    """They are in hand, not durable: the lane is no longer idle."""
    desk.place(A0)
    assert desk.lane.idle
    desk.accept((A0, 0), (A0, 4))
    assert desk.lane.positions == {A0: 5}
    assert not desk.lane.idle
    assert desk.lane.holds([A0])
    assert not desk.lane.holds([A1])
    assert desk.lane.draft_bytes > 0


def test_the_first_record_in_hand_is_the_oldest_that_the_table_lacks(desk: Desk) -> None:
    """Of what is landing before what is open, of several polls the first; nothing once all has landed."""
    desk.place(A0, A1)
    for number, tp in enumerate((A0, A0, A1)):
        desk.lane.accept(columns_of([(tp, FakeRecord(number, b"v", 100 + number))]))
    assert desk.lane.in_hand == {A0: 100, A1: 102}
    desk.lane.flush(FlushReason.ROWS)
    desk.lane.accept(columns_of([(A0, FakeRecord(9, b"v", 200))]))
    assert desk.lane.in_hand == {A0: 100, A1: 102}
    desk.work()
    desk.lane.look()
    assert desk.lane.in_hand == {A0: 200}


def test_records_of_partitions_without_a_place_are_not_taken(desk: Desk) -> None:
    """No draft is begun for them."""
    desk.place(A0)
    assert desk.accept((A1, 0), (B0, 3)).strangers == 2
    assert desk.lane.idle
    assert desk.lane.positions == {A0: 0}


def test_a_draft_that_is_due_is_flushed() -> None:
    """The flush says what landed and why."""
    desk = Desk(FlushSettings(rows=2, bytes=1 << 30, seconds=60))
    desk.place(A0)
    desk.accept((A0, 0))
    assert desk.lane.look() == Progress()
    assert not desk.lane.landing
    desk.accept((A0, 1))
    desk.lane.look()
    assert desk.lane.landing
    desk.work()
    (flushed,) = desk.lane.look().flushed
    assert flushed.reason is FlushReason.ROWS
    assert flushed.staged.last == {A0: 1}
    assert desk.lane.idle


def test_a_draft_is_due_by_age_also_when_nothing_comes() -> None:
    """By the clock of the process."""
    desk = Desk(FlushSettings(rows=10, bytes=1 << 30, seconds=60))
    desk.place(A0)
    desk.accept((A0, 0))
    desk.clock.advance(60)
    desk.lane.look()
    desk.work()
    assert desk.lane.look().flushed[0].reason is FlushReason.SECONDS


def test_each_batch_builds_on_the_one_before(desk: Desk) -> None:
    """The chain: also while the one before is still landing."""
    desk.place(A0, txn=7)
    desk.place(A1)
    desk.accept((A0, 8))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A0, 12), (A1, 0))
    desk.work()
    desk.lane.look()
    desk.lane.flush(FlushReason.ROWS)
    desk.work()
    assert [staged.expected for staged in desk.landed] == [{A0: 7}, {A0: 8, A1: None}]
    assert [staged.last for staged in desk.landed] == [{A0: 8}, {A0: 12, A1: 0}]


def test_only_one_batch_lands_at_a_time() -> None:
    """A draft that is due waits for the one before; what it waits for can be waited on."""
    desk = Desk(FlushSettings(rows=1, bytes=1 << 30, seconds=60))
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.look()
    assert desk.lane.blocking is None
    desk.accept((A0, 1))
    desk.lane.look()
    assert desk.lane.blocking is not None
    assert desk.landed == []
    desk.work()
    assert desk.lane.blocking.done()
    assert len(desk.lane.look().flushed) == 1
    assert desk.lane.landing
    assert desk.lane.blocking is None


def test_nothing_lands_before_its_file_is_whole(desk: Desk) -> None:
    """The store gets its task from the encoder's end."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.STOP)
    assert len(desk.store) == 0
    desk.encoder.run()
    assert len(desk.store) == 1


def test_a_commit_tells_its_topic_ids_and_its_gaps(desk: Desk) -> None:
    """Of the topics and partitions in it, and each gap once."""
    desk.lane.topic_ids.update({"a": "id-a", "b": "id-b"})
    gap = Gap(A0, 3, 6, "retention")
    desk.lane.place(A0, txn=2, position=7, gap=gap)
    desk.place(B0)
    desk.lane.place(A1, txn=2, position=7, gap=Gap(A1, 3, 6, "retention"))
    desk.accept((A0, 7))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A0, 8), (B0, 0))
    desk.work()
    (flushed,) = desk.lane.look().flushed
    desk.lane.flush(FlushReason.ROWS)
    desk.work()
    assert flushed.gaps == (gap,)
    first, second = desk.infos
    assert first == {
        "operation_kind": "flush",
        "topic_ids": {"a": "id-a"},
        "gaps": [{"topic": "a", "partition": 0, "first": 3, "last": 6, "reason": "retention"}],
    }
    assert second["topic_ids"] == {"a": "id-a", "b": "id-b"}
    assert second["gaps"] == []


def test_a_fence_drops_everything_in_hand(desk: Desk) -> None:
    """The draft that was built on it too; all partitions have to be placed again."""
    desk.place(A0, A1)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A1, 0))
    desk.answers = [Fenced("moved")]
    desk.work()
    progress = desk.lane.look()
    assert progress == Progress(to_place={A0, A1}, fenced="moved")
    assert desk.lane.idle
    assert desk.lane.positions == {}
    desk.work()
    assert desk.landed == []
    assert desk.budget.used == 0
    assert len(desk.storage.files) == 1  # the fenced batch's: nobody but vacuum removes a file that was sealed


def test_a_fence_takes_gaps_back(desk: Desk) -> None:
    """Placing again finds them again, if they still are."""
    desk.lane.place(A0, txn=2, position=7, gap=Gap(A0, 3, 6, "retention"))
    desk.place(A1)
    desk.accept((A1, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.answers = [Fenced("moved")]
    desk.work()
    desk.lane.look()
    desk.place(A0, txn=6)
    desk.accept((A0, 7))
    desk.lane.flush(FlushReason.ROWS)
    desk.work()
    assert desk.infos[-1]["gaps"] == []


def test_a_file_that_fails_is_read_again(desk: Desk) -> None:
    """The draft is dropped, its partitions are placed again, and somebody is told why."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.storage.failures.append(OSError("connection reset"))
    desk.lane.flush(FlushReason.ROWS)
    desk.work()
    progress = desk.lane.look()
    assert progress.to_place == {A0}
    assert "connection reset" in progress.unavailable
    assert desk.landed == []


def test_a_file_that_fails_while_it_grows_is_noticed_before_it_is_due(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading on into a file that can't be written would waste the minutes up to the flush."""
    monkeypatch.setattr("ingestor.ingest.parquet.ROW_GROUP_BYTES", 1)
    desk.place(A0)
    desk.accept((A0, 0))
    desk.storage.failures.append(OSError("connection reset"))
    desk.work()
    assert desk.lane.look().to_place == {A0}
    desk.work()
    assert desk.budget.used == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError("No space left on device"), RefusedError), (OccExhaustedError("x", hint="y"), OccExhaustedError)],
)
def test_what_reading_again_can_t_mend_is_raised(desk: Desk, error: Exception, kind: type[Exception]) -> None:
    """A full disk, exhausted retries: somebody has to do something."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.answers = [error]
    desk.work()
    with pytest.raises(kind):
        desk.lane.look()


def test_dropping_a_partition_throws_its_draft_away(desk: Desk) -> None:
    """The rows of the others in it have to be read again; partitions without rows in it go on."""
    desk.place(A0, A1, B0)
    desk.accept((A0, 0), (A1, 0))
    assert desk.lane.drop([A0]) == {A1}
    assert desk.lane.positions == {B0: 0}
    assert desk.lane.idle
    desk.work()
    assert desk.storage.files == {}
    assert desk.budget.used == 0


def test_dropping_a_partition_without_rows_keeps_the_draft(desk: Desk) -> None:
    """Frequent rebalances must not keep the others from ever landing."""
    desk.place(A0, A1)
    desk.accept((A0, 0))
    assert desk.lane.drop([A1]) == set()
    assert desk.lane.holds([A0])
    assert desk.lane.positions == {A0: 1}


def test_what_is_landing_goes_on_when_its_partition_is_dropped(desk: Desk) -> None:
    """Only the log decides about it."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    assert desk.lane.drop([A0]) == set()
    assert desk.lane.holds([A0])
    desk.work()
    assert [flushed.staged.last for flushed in desk.lane.look().flushed] == [{A0: 0}]


@pytest.mark.usefixtures("waiting")
def test_a_flush_lands_what_is_landing_and_what_is_open(desk: Desk) -> None:
    """One after the other, within the time that there is."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A0, 1))
    progress = desk.flush()
    assert [flushed.reason for flushed in progress.flushed] == [FlushReason.ROWS, FlushReason.REVOKED]
    assert desk.lane.idle


@pytest.mark.usefixtures("waiting")
def test_a_flush_ends_with_its_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not landed by then is still landing, or still open."""
    monkeypatch.setattr(ManualWorker, "run", lambda *_: 0)
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A0, 1))
    assert desk.flush(10) == Progress()
    assert desk.clock() == 1_010
    assert desk.lane.landing
    assert desk.lane.holds([A0])


@pytest.mark.usefixtures("waiting")
def test_a_flush_of_nothing_takes_no_time(desk: Desk) -> None:
    """Nothing is sealed either."""
    desk.place(A0)
    assert desk.flush() == Progress()
    assert desk.clock() == 1_000


@pytest.mark.usefixtures("waiting")
def test_a_flush_that_is_fenced_says_so(desk: Desk) -> None:
    """And lands nothing that was built on it."""
    desk.place(A0)
    desk.accept((A0, 0))
    desk.lane.flush(FlushReason.ROWS)
    desk.accept((A0, 1))
    desk.answers = [Fenced("moved")]
    progress = desk.flush()
    assert progress.fenced == "moved"
    assert desk.landed == []
    assert desk.lane.idle


def test_a_new_date_ends_the_file() -> None:
    """A file belongs to one ingest date."""
    desk = Desk()
    desk.place(A0)
    desk.accept((A0, 0))
    desk.today = date(2026, 2, 1)
    desk.lane.look()
    desk.work()
    assert desk.lane.look().flushed[0].reason is FlushReason.DATE


def test_sealing_nothing_does_nothing(desk: Desk) -> None:
    """There is no empty file and no empty commit."""
    desk.lane.flush(FlushReason.STOP)
    assert desk.lane.idle
    assert len(desk.encoder) == 0
