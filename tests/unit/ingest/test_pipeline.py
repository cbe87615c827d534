"""The pipeline: rebalances, fences, lost positions and back-pressure, led step by step over the fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ingestor.config.settings import FlushSettings
from ingestor.errors import DataLossError, IngestorError, OccExhaustedError, RefusedError, Unavailable
from ingestor.ingest.breaker import BreakerState
from ingestor.ingest.pipeline import Pipeline
from ingestor.ingest.policy import FlushReason
from ingestor.ingest.route import Times
from ingestor.ledger import Gap, Placement
from ingestor.records import TopicPartition
from tests.support.fakes.process import Process, World
from tests.support.fakes.staging import stage
from tests.support.fakes.table import FakeTable, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NEVER = FlushSettings(rows=1_000_000, bytes=1 << 40, seconds=604_800)
EVERY_TURN = FlushSettings(rows=1, bytes=1)


def world(*, eager: bool) -> World:
    made = World({"a": 2}, eager=eager)
    for tp in (A0, A1):
        made.kafka.produce(tp, [b"v"] * 4)
    return made


@pytest.fixture(params=[False, True], ids=["cooperative", "eager"])
def both(request: pytest.FixtureRequest) -> Iterator[World]:
    """Return a world of either protocol, with four records in each of two partitions."""
    with world(eager=request.param).installed() as made:
        yield made
        made.judge.check()


@pytest.fixture
def one() -> Iterator[World]:
    """Return a world of incremental rebalances, where the protocol does not matter."""
    with world(eager=False).installed() as made:
        yield made
        made.judge.check()


def landed(made: World) -> dict[TopicPartition, list[int]]:
    """Return the offsets that are in the table."""
    made.judge.check()
    return {tp: sorted(rows) for tp, rows in made.judge.rows.items()}


FOUR = [0, 1, 2, 3]


# --- the way of a record ---


def test_records_land_and_are_acknowledged_after(both: World) -> None:
    """Position by position; Kafka hears of them only when they are in the table."""
    process = both.process(limits=NEVER)
    process.go(3)
    assert landed(both) == {A0: [], A1: []}
    assert process.source.acknowledged == {}
    process.lane.flush(FlushReason.ROWS)
    process.go(2)
    assert landed(both) == {A0: FOUR, A1: FOUR}
    assert process.source.acknowledged == {A0: 4, A1: 4}


def test_a_restart_goes_on_where_the_table_ends(both: World) -> None:
    """Not where the group says, and not at the start."""
    both.process(limits=EVERY_TURN).go(6)
    both.group.leave("member-1")
    both.kafka.produce(A0, [b"new"])
    process = both.process(limits=EVERY_TURN)
    process.go(6)
    assert landed(both)[A0] == [*FOUR, 4]
    assert process.told.duplicates == 0


def test_redelivered_records_are_skipped(one: World) -> None:
    """What is below the position was had before."""
    process = one.process(limits=NEVER)
    process.go(3)
    process.source.redeliver(A0, 3)
    process.go(1)
    assert process.told.duplicates == 3


def test_the_end_is_reached_behind_markers_too(one: World) -> None:
    """The last offsets may hold no record; the position counts, not the last record."""
    one.kafka.skip(A0, 7)
    process = one.process(limits=EVERY_TURN)
    assert not process.pipeline.reached({A0: 11, A1: 4})
    assert process.pipeline.remaining({A0: 11, A1: 4}) == 0  # nothing is ours yet
    process.go(6)
    assert process.pipeline.reached({A0: 11, A1: 4})
    assert process.pipeline.remaining({A0: 11, A1: 4}) == 0
    assert process.pipeline.remaining({A0: 13, A1: 4}) == 2


def test_a_run_lands_what_is_left_and_leaves_the_group(one: World) -> None:
    """Until a condition holds; then everything in hand lands."""
    process = one.process(limits=NEVER)
    one.group.leave(process.name)
    one.running.append(process)
    process.pipeline.run(until=lambda: process.pipeline.reached({A0: 4, A1: 4}))
    assert landed(one) == {A0: FOUR, A1: FOUR}
    assert process.source.closed
    assert process.pipeline.assigned == frozenset()


def test_a_drain_need_not_wait_for_more(one: World) -> None:
    """Who knows the ends asks for short polls, and is done as much sooner."""
    process = one.process(limits=NEVER)
    one.running.append(process)
    process.pipeline.run(until=lambda: process.pipeline.reached({A0: 4, A1: 4}), poll_seconds=0.02)
    assert process.source.waits == {0.02}


def test_stopping_ends_the_run(one: World) -> None:
    """As a signal does."""
    process = one.process(limits=NEVER)
    one.running.append(process)
    process.pipeline.run(until=lambda: True)
    assert process.source.closed


def test_a_store_that_does_not_answer_does_not_keep_the_process(one: World) -> None:
    """Its last records are not in the table; nothing is lost, and it says so."""
    process = one.process(limits=NEVER)
    process.go(3)
    one.running.append(process)
    process.patience_left = 0
    before = one.clock()
    with pytest.raises(IngestorError, match="not in the table"):
        process.pipeline.finish()
    assert one.clock() - before == pytest.approx(8)
    assert landed(one) == {A0: [], A1: []}


# --- fences ---


def overtake(made: World, last: int) -> None:
    """Let another owner of a:0 land its first records."""
    staged = stage(made.storage, [(A0, offset) for offset in range(last + 1)])
    FakeTable(made.log, made.storage).attempt(staged.files, {"app/a/0": last}, {"commit_id": staged.commit_id})


def test_a_fenced_process_reads_again_from_the_ledger(both: World) -> None:
    """Somebody moved a txn: all that was built on the old one goes, and nothing slips in from before."""
    both.kafka.produce(A0, [b"v"] * 30)
    process = both.process(limits=NEVER, poll_records=4)
    process.go(3)
    overtake(both, 1)
    process.lane.flush(FlushReason.ROWS)
    process.go(8)
    process.lane.flush(FlushReason.ROWS)
    process.go(2)
    assert "started over: fenced" in process.told.events
    assert landed(both)[A1] == FOUR
    assert len(landed(both)[A0]) > 10


def test_a_fenced_batch_is_not_acknowledged(one: World) -> None:
    """Its records are somebody else's to acknowledge."""
    process = one.process(limits=NEVER)
    process.go(3)
    overtake(one, 1)
    process.lane.flush(FlushReason.ROWS)
    process.work()
    process.step()
    assert process.source.acknowledged == {}
    assert landed(one) == {A0: [0, 1], A1: []}


# --- rebalances ---


def test_a_revocation_lands_what_the_partitions_have(both: World) -> None:
    """The next owner goes on behind it, and reads nothing twice."""
    first = both.process(limits=NEVER)
    first.go(3)
    second = both.process(limits=NEVER)
    for _ in range(4):
        first.go()
        second.go()
    assert "flushed: revoked" in first.told.events
    assert landed(both) == {A0: FOUR, A1: FOUR}
    assert {*first.pipeline.assigned, *second.pipeline.assigned} == {A0, A1}
    assert second.told.duplicates == 0


def test_a_revocation_waits_no_longer_than_its_deadline(one: World) -> None:
    """The group waits for us; what has not landed by then is dropped, and its next owner reads it."""
    first = one.process(limits=NEVER, times=Times(revoke_seconds=30, place_seconds=10))
    first.go(3)
    second = one.process(limits=EVERY_TURN)
    before = one.clock()
    first.step(patience=0)
    assert one.clock() - before == pytest.approx(30)
    assert len(first.pipeline.assigned) == 1
    for _ in range(6):
        first.go()
        second.go()
    first.lane.flush(FlushReason.ROWS)
    first.go(3)
    assert landed(one) == {A0: FOUR, A1: FOUR}


def test_kept_partitions_of_a_dropped_file_are_read_again(one: World) -> None:
    """A file with rows of a lost partition can't be taken apart."""
    first = one.process(limits=NEVER)
    first.go(3)
    first.pipeline.on_lost([A0])
    assert first.pipeline.assigned == {A1}
    assert first.lane.positions == {}
    first.go(3)
    assert first.lane.positions == {A1: 4}


def test_lost_partitions_land_nothing(one: World) -> None:
    """Somebody else may own them already."""
    process = one.process(limits=NEVER)
    process.go(3)
    one.group.expire(process.name)
    process.step(patience=0)
    process.work()
    assert "lost" in process.told.events
    assert landed(one) == {A0: [], A1: []}


def test_partitions_that_come_back_are_placed_behind_what_is_landing(one: World) -> None:
    """The file is finished, the store thread has not got to it: a place from before its commit would be outdated."""
    process = one.process(limits=NEVER)
    process.go(3)
    process.lane.flush(FlushReason.ROWS)
    process.encoder.run()
    one.group.expire(process.name)
    process.step(patience=0)
    one.group.join(process.name)
    for _ in range(3):
        one.clock.advance(1)
        process.step(patience=0)
    process.work()
    process.go(4)
    assert "started over: fenced" not in process.told.events
    assert {tp: place.position for tp, place in process.told.placements[-1].placements.items()} == {A0: 4, A1: 4}
    assert landed(one) == {A0: FOUR, A1: FOUR}


def test_a_process_that_slept_loses_to_its_successor(both: World) -> None:
    """It wakes with a sealed file, a place in the queue, and partitions that are no longer its own."""
    sleeper = both.process(limits=NEVER)
    sleeper.go(3)
    sleeper.lane.flush(FlushReason.ROWS)
    both.group.expire(sleeper.name)
    successor = both.process(limits=EVERY_TURN)
    successor.go(6)
    assert landed(both) == {A0: FOUR, A1: FOUR}
    sleeper.work()
    assert sleeper.told.outcomes[-1] == "fenced"
    for _ in range(6):
        sleeper.go()
        successor.go()
    assert landed(both) == {A0: FOUR, A1: FOUR}
    assert sleeper.source.acknowledged == {}


def test_nothing_is_acknowledged_for_partitions_that_are_gone(one: World) -> None:
    """It landed while they were ours, but the group would refuse it."""
    process = one.process(limits=NEVER)
    process.go(3)
    process.lane.flush(FlushReason.ROWS)
    process.pipeline.on_lost([A0, A1])
    process.work()
    process.step(patience=0)
    assert landed(one) == {A0: FOUR, A1: FOUR}
    assert process.source.acknowledged == {}


def test_records_of_revoked_partitions_are_strangers(one: World) -> None:
    """They may still come out of the poll that revoked them."""
    one.strangers = True
    one.kafka.produce(A1, [b"v"] * 30)
    first = one.process(limits=NEVER, poll_records=3)
    first.go(3)
    second = one.process(limits=EVERY_TURN)
    for _ in range(30):
        first.go()
        second.go()
    assert first.told.strangers > 0
    assert landed(one)[A1] == list(range(34))


def test_a_ledger_that_does_not_answer_does_not_hold_up_the_group(both: World) -> None:
    """What can't be placed in time stays paused, and is placed later from the ledger."""
    process = both.process(limits=EVERY_TURN)
    before = both.clock()
    process.step(patience=0)
    assert both.clock() - before == pytest.approx(10)
    assert process.pipeline.assigned == {A0, A1}
    assert process.source.paused == {A0, A1}
    process.go(6)
    assert landed(both) == {A0: FOUR, A1: FOUR}


def test_a_place_for_a_partition_that_is_gone_is_not_taken(one: World) -> None:
    """It was asked for while the partition was ours; another owner reads it now."""
    process = one.process(limits=EVERY_TURN)
    process.step(patience=0)
    assert process.pipeline.view()["route"].pending == 2
    process.pipeline.on_lost([A0])
    assert process.pipeline.view()["route"].pending == 1
    process.work()
    process.step(patience=0)
    assert process.lane.positions.keys() == {A1}


def test_a_place_that_waits_for_others_is_asked_for_again(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second, not at once."""
    process = one.process(limits=EVERY_TURN)
    place = type(process.route.placer).place
    asked: list[float] = []

    def place_later(self: Any, tps: Any, damaged: Any) -> Any:
        asked.append(one.clock())
        if len(asked) == 1:
            msg = "another member has just begun"
            raise Unavailable(msg)
        return place(self, tps, damaged)

    monkeypatch.setattr(type(process.route.placer), "place", place_later)
    process.step()
    process.step()
    assert len(asked) == 1
    assert any("just begun" in event for event in process.told.events)
    process.go(6)
    assert asked[1] - asked[0] >= 1
    assert landed(one) == {A0: FOUR, A1: FOUR}


def test_a_refusal_inside_a_callback_is_raised_after_the_poll(one: World) -> None:
    """Nothing of librdkafka may stand in between."""
    one.kafka.retain_from(A0, 4)
    one.log.write_foreign({"app/a/0": 1})
    process = one.process(skip_lost=False)
    with pytest.raises(DataLossError, match="retention"):
        process.step()
    process.pipeline.abandon()
    assert process.source.closed
    assert one.log.version == 1


def test_a_new_partition_is_read_from_its_start(one: World) -> None:
    """It has no txn, and nobody's rows."""
    process = one.process(limits=EVERY_TURN)
    process.go(6)
    assert process.told.placements[0].txns == {A0: None, A1: None}
    assert {tp: place.position for tp, place in process.told.placements[0].placements.items()} == {A0: 0, A1: 0}


# --- lost positions ---


def test_a_lost_position_is_placed_again_and_the_gap_declared(both: World) -> None:
    """What was read before lands first; the rest goes on behind the gap."""
    for tp in (A0, A1):
        both.kafka.produce(tp, [b"v"] * 30)
    process = both.process(limits=NEVER, poll_records=4)
    process.go(2)
    read = process.lane.positions[A0]
    process.source.pause([A0])  # what was fetched ahead is thrown away
    both.kafka.retain_from(A0, 30)
    process.go(20)
    process.lane.flush(FlushReason.ROWS)
    process.go(3)
    assert "flushed: adrift" in process.told.events
    assert landed(both) == {A0: [*range(read), *range(30, 34)], A1: list(range(34))}
    gaps = [gap for flushed in process.told.flushes for gap in flushed.gaps]
    assert [(gap.first, gap.last, gap.reason) for gap in gaps] == [(read, 29, "retention")]


def test_placing_one_partition_again_leaves_the_others_where_they_are(both: World) -> None:
    """An eager member has to assign them again too: in the middle of what it is reading, not at its end."""
    both.kafka.produce(A0, [b"v"] * 8)
    both.kafka.produce(A1, [b"v"] * 200)
    process = both.process(limits=NEVER, poll_records=4)
    process.go(2)
    process.source.pause([A0])
    both.kafka.retain_from(A0, 12)
    process.go(8)
    assert 0 < process.lane.positions[A1] < 100
    both.kafka.produce(A0, [b"new"])
    process.go(80)
    process.lane.flush(FlushReason.ROWS)
    process.go(3)
    assert landed(both)[A1] == list(range(204))
    assert landed(both)[A0][-1] == 12


def test_a_lost_position_ends_the_process_under_fail(one: World) -> None:
    """Exit code 3; what was read before is in the table, nothing else is."""
    one.kafka.produce(A0, [b"v"] * 30)
    process = one.process(limits=NEVER, poll_records=4, skip_lost=False)
    process.go(2)
    read = process.lane.positions[A0]
    process.source.pause([A0])
    one.kafka.retain_from(A0, 30)
    with pytest.raises(DataLossError, match="a:0"):
        process.go(12)
    assert landed(one)[A0] == list(range(read))


@pytest.mark.parametrize("eager", [False, True])
def test_after_a_truncation_only_new_offsets_are_taken(*, eager: bool) -> None:
    """Kafka counts on from before our position: what stands there again is fetched, but not taken."""
    with world(eager=eager).installed() as made:
        made.log.write_foreign({"app/a/0": 9, "app/a/1": 3})
        process = made.process(limits=EVERY_TURN)
        process.go(3)
        (placed,) = process.told.placements
        assert placed.placements[A0] == Placement(10, 4, Gap(A0, 4, 9, "truncated"))
        made.kafka.produce(A0, [b"again"] * 5)
        process.go(6)
        assert process.told.duplicates == 5
        assert len(process.told.placements) == 1
        assert made.log.version == 1
        made.kafka.produce(A0, [b"new"] * 3)
        process.go(6)
        (flushed,) = process.told.flushes
        assert flushed.staged.last == {A0: 11}
        assert flushed.gaps == (Gap(A0, 4, 9, "truncated"),)


def test_adrift_partitions_are_not_resumed(one: World) -> None:
    """They wait for their place while the others are read."""
    one.kafka.produce(A0, [b"v"] * 30)
    process = one.process(limits=NEVER, poll_records=4)
    process.go(2)
    process.source.pause([A0])
    one.kafka.retain_from(A0, 30)
    process.step(patience=0)
    process.step(patience=0)
    assert A0 in process.source.paused
    assert A1 not in process.source.paused


# --- back-pressure ---


def test_a_full_memory_pauses_everything_until_half_of_it_is_free(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumption stops, polling does not."""
    monkeypatch.setattr("ingestor.ingest.back_pressure._HOLD_SECONDS", 0.01)
    one.kafka.produce(A0, [b"x" * 100] * 50)
    process = one.process(limits=NEVER, budget=500, poll_records=4)
    process.step()
    process.step(patience=0)
    process.step(patience=0)
    assert "paused: memory is full" in process.told.events
    assert process.source.paused == {A0, A1}
    held = process.budget.used
    process.step(patience=0)
    assert process.budget.used == held
    process.lane.flush(FlushReason.ROWS)
    process.go(1)
    process.step(patience=0)
    assert process.told.events[-1] == "resumed"
    assert process.source.paused == set()


def test_a_slow_table_pauses_its_route(one: World) -> None:
    """A draft that is due, with the one before still landing: nothing more is taken in."""
    one.kafka.produce(A0, [b"v"] * 50)
    process = one.process(limits=FlushSettings(rows=3, bytes=1 << 30, seconds=60), poll_records=4)
    process.step()
    for _ in range(12):
        process.step(patience=0)
        process.encoder.run()
        one.clock.advance(0.1)
    assert "paused: table is slow" in process.told.events
    assert process.source.paused == {A0, A1}
    process.go(30)
    assert "resumed" in process.told.events
    assert len(landed(one)[A0]) >= 50


def test_an_open_breaker_pauses_and_nothing_is_dropped(one: World) -> None:
    """It waits with all it has, and goes on when the store is back."""
    process = one.process(limits=EVERY_TURN, poll_records=10)
    process.step()
    seen: list[BreakerState] = []

    def look_on() -> None:
        process.step(patience=0)
        seen.append(process.breaker.state)

    process.table.faults.attempt.extend([Fault.FAILED] * 4)
    for _ in range(4):
        process.interpose("sleep", look_on)
    process.step(patience=0)
    process.work()
    process.go(8)
    assert BreakerState.OPEN in seen
    assert "paused: breaker open" in process.told.events
    assert "resumed" in process.told.events
    assert landed(one) == {A0: FOUR, A1: FOUR}


def test_a_half_open_breaker_lets_records_come(one: World) -> None:
    """Only a commit can close it; held back until it is closed, a route would wait for itself for ever."""
    process = one.process(limits=EVERY_TURN)
    process.go(6)
    process.breaker._successes_min = 3
    process.breaker.failed()
    process.breaker.failed()
    process.go(1)
    assert process.source.paused == {A0, A1}
    one.clock.advance(21)
    assert process.breaker.enter() == 0
    process.breaker.succeeded()
    assert process.pipeline.view()["route"].breaker is BreakerState.HALF_OPEN
    assert process.pipeline.view()["route"].answering
    one.kafka.produce(A0, [b"new"])
    process.go(8)
    assert landed(one)[A0] == [*FOUR, 4]
    assert process.breaker.state is BreakerState.CLOSED


def test_a_breaker_closes_though_nothing_is_left_that_asks_the_store(one: World) -> None:
    """All is in the table and no record comes: somebody has to probe, or the outage never ends for who looks at it."""
    process = one.process(limits=EVERY_TURN, breaker_successes=3)
    process.go(6)
    process.breaker.failed()
    process.breaker.failed()
    one.clock.advance(21)
    assert process.breaker.enter() == 0
    process.breaker.succeeded()
    assert process.pipeline.view()["route"].breaker is BreakerState.HALF_OPEN
    process.go(8)
    assert process.breaker.state is BreakerState.CLOSED
    assert landed(one) == {A0: FOUR, A1: FOUR}


def test_partitions_that_wait_for_their_place_are_not_resumed(both: World) -> None:
    """They stand at the end of their topic: reading on there would skip everything before."""
    process = both.process(limits=EVERY_TURN)
    process.step(patience=0)
    for _ in range(3):
        both.kafka.produce(A0, [b"new"])
        process.step(patience=0)
    assert process.source.paused == {A0, A1}
    process.go(6)
    assert landed(both)[A0] == [*FOUR, 4, 5, 6]


# --- ends ---


def test_a_refused_commit_ends_the_route(one: World) -> None:
    """Nobody can go on; the partitions stay where the ledger has them."""
    process = one.process(limits=EVERY_TURN)
    process.step()
    process.interpose("attempt", lambda: (_ for _ in ()).throw(OSError("403 Forbidden: AccessDenied")))
    with pytest.raises(RefusedError, match="access is denied"):
        process.go(6)
    assert any(event.startswith("gave up") for event in process.told.events)
    assert process.source.paused == {A0, A1}
    assert landed(one) == {A0: [], A1: []}


def test_exhausted_retries_end_the_route(one: World) -> None:
    """With nothing of the batch in the table."""
    process = one.process(limits=EVERY_TURN, occ_retries=2)
    process.table.faults.attempt.extend([Fault.CONFLICT] * 3)
    with pytest.raises(OccExhaustedError):
        process.go(6)
    assert landed(one) == {A0: [], A1: []}


def test_a_failure_of_the_source_comes_out(one: World) -> None:
    """Kafka refuses for good: no turn may hide it."""
    process = one.process()
    process.source.raises.append(RefusedError("no", hint="never"))
    with pytest.raises(RefusedError):
        process.step()


def test_a_given_up_pipeline_lands_nothing_more(one: World) -> None:
    """Leaving the group revokes; after a failure that must not flush."""
    process: Process = one.process(limits=NEVER)
    process.go(3)
    process.pipeline.abandon()
    process.work()
    assert landed(one) == {A0: [], A1: []}
    assert process.source.closed


def test_a_draft_can_be_flushed_before_it_is_due(one: World) -> None:
    """It lands while the process goes on; what comes later waits until that has landed."""
    process = one.process(limits=NEVER)
    process.go(3)
    assert landed(one) == {A0: [], A1: []}
    assert process.pipeline.flush()
    process.go(3)
    assert landed(one) == {A0: [0, 1, 2, 3], A1: [0, 1, 2, 3]}
    assert process.pipeline.assigned == {A0, A1}


def test_a_view_shows_every_route(one: World) -> None:
    """As values, for whoever looks from another thread."""
    process = one.process(limits=NEVER)
    process.go(3)
    (view,) = process.pipeline.view().values()
    assert view.positions == {A0: 4, A1: 4}
    assert view.breaker is BreakerState.CLOSED
    assert (view.paused, view.pending, view.failure) == (False, 0, None)
    assert view.draft_bytes > 0
    assert view.in_hand.keys() == {A0, A1}
    assert view.assigned == 2
    assert view.answering
    assert process.pipeline.memory[0] > 0
    assert process.pipeline.joined


def test_big_records_are_polled_in_small_numbers(one: World) -> None:
    """So that one poll can't outgrow the memory."""
    one.kafka.produce(A0, [b"x" * (2 << 20)] * 12)
    process = one.process(limits=NEVER, poll_records=1_000)
    process.go(8)
    assert isinstance(process.pipeline, Pipeline)
    assert process.pipeline._poll_records <= 3
