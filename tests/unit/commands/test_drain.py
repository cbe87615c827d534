"""When `run --once` is done, when it waits for others, and when it gives up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from ingestor.commands.drain import Drain
from ingestor.errors import DataLossError, IngestorError, RefusedError, Unavailable
from ingestor.kafka.groups import Group
from ingestor.observe.membership import Membership
from ingestor.records import TopicPartition
from tests.support.fakes.worker import FakeClock, InstantWorker

if TYPE_CHECKING:
    from collections.abc import Collection

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
PATIENCE_SECONDS = 30.0
SESSION_SECONDS = 45.0


@dataclass
class World:
    """A process that drains two partitions of ten records, and what the world around it says."""

    assigned: frozenset[TopicPartition] = frozenset()
    read: bool = False  # whether what is ours has been read to the ends
    left: dict[TopicPartition, int] | Exception = field(default_factory=lambda: {A0: 10, A1: 10})
    members: tuple[str, ...] = ("us", "other")
    rebalancing: bool = False
    told: list[str] = field(default_factory=list)
    dropped: int = 0  # how often what was in hand was
    flushed: int = 0  # how often it was sent into the log
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        """Start the drain."""
        worker = InstantWorker()
        kafka = {"group.id": "g", "session.timeout.ms": str(int(SESSION_SECONDS * 1000))}
        world = cast("Any", self)
        self.membership = Membership(world, kafka, world, clock=self.clock, worker=worker)
        self.drain = Drain(
            world,
            {A0: 10, A1: 10},
            world,
            self.membership,
            patience_seconds=PATIENCE_SECONDS,
            watch=world,
            worker=worker,
            clock=self.clock,
        )

    def reached(self, _ends: object) -> bool:
        return bool(self.assigned) and self.read

    def flush(self) -> bool:
        self.flushed += 1
        return self.flushed > 1

    def group(self, _group_id: str, *, timeout: float) -> Group:
        assert timeout
        return Group(self.members, self.rebalancing)

    def waiting(self, why: str) -> None:
        self.told.append(why)

    def records_left(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if isinstance(self.left, Exception):
            raise self.left
        return {tp: self.left[tp] for tp in tps}

    offsets_left = records_left

    def over_after(self, seconds: float) -> bool:
        """Let the loop turn for so long; tell whether it was over by then."""
        for _ in range(int(seconds)):
            if self.drain.over():
                return True
            self.clock.advance(1.0)
        return self.drain.over()


def test_a_drain_of_partitions_that_are_all_ours_is_done_when_they_are_read() -> None:
    """Nobody else needs to be asked."""
    world = World(assigned=frozenset((A0, A1)), left=AssertionError("asked"))
    assert not world.over_after(100)
    world.read = True
    assert world.drain.over()
    world.drain.verdict(20)


def test_partitions_of_others_count_when_the_table_has_them() -> None:
    """Not before, however well our own share went."""
    world = World(assigned=frozenset((A0,)), read=True)
    assert not world.over_after(10)
    world.left = {A1: 0}
    assert world.over_after(5)
    world.drain.verdict(10)


def test_who_gets_nothing_is_done_when_others_have_landed_it_all() -> None:
    """Zero rows of its own, and yet the table has what it was started for."""
    world = World(left={A0: 0, A1: 0})
    assert world.over_after(5)
    world.drain.verdict(0)


def test_our_own_share_lands_while_it_waits_for_others() -> None:
    """They may wait for it in turn. It is tried until it goes, and then not again for every record that comes later."""
    world = World(assigned=frozenset((A0,)))
    world.over_after(5)
    assert world.flushed == 0
    world.read = True
    world.over_after(20)
    assert world.flushed == 2


def test_it_waits_for_others_as_long_as_they_get_on() -> None:
    """A record in half a minute is enough."""
    world = World(assigned=frozenset((A0,)), read=True)
    for count in range(9, 0, -1):
        world.left = {A0: 0, A1: count}
        assert not world.over_after(PATIENCE_SECONDS)
    world.left = {A0: 0, A1: 0}
    assert world.over_after(5)
    world.drain.verdict(10)


@pytest.mark.parametrize(
    ("members", "rebalancing", "patience_seconds"),
    [((), False, PATIENCE_SECONDS), (("us",), False, PATIENCE_SECONDS), (("us", "dead"), True, SESSION_SECONDS + 15)],
)
def test_it_gives_up_when_nothing_moves(members: tuple[str, ...], rebalancing: bool, patience_seconds: float) -> None:  # noqa: FBT001
    """After the session of a member that may be dead, if there is one; it never calls that done."""
    world = World(members=members, rebalancing=rebalancing)
    assert not world.over_after(patience_seconds - 1)
    assert world.over_after(10)
    with pytest.raises(RefusedError, match=r"no partition was assigned to this process .* a:0, a:1 is not drained"):
        world.drain.verdict(0)


def test_giving_up_on_others_lands_our_own_first() -> None:
    """It ends in order, so that what was read is committed, and then says what is missing."""
    world = World(assigned=frozenset((A0,)), read=True)
    assert world.over_after(SESSION_SECONDS + 20)
    with pytest.raises(
        RefusedError, match=r"1 of 2 partitions were not assigned to this process .* a:1 is not drained"
    ):
        world.drain.verdict(10)


def test_it_never_gives_up_while_it_reads() -> None:
    """A long topic takes its time."""
    world = World(assigned=frozenset((A0,)))
    assert not world.over_after(1_000)


def test_a_refusal_to_go_on_is_the_verdict() -> None:
    """What a placement of these partitions would refuse is not drained by anybody."""
    world = World(left=DataLossError("gone", hint="bring it back"))
    assert world.over_after(5)
    with pytest.raises(DataLossError, match="gone"):
        world.drain.verdict(0)


def test_a_store_that_does_not_answer_is_the_reason_in_the_end() -> None:
    """And no proof that anything was landed."""
    world = World(members=("us",), left=Unavailable("the store is away"))
    assert world.over_after(PATIENCE_SECONDS + 5)
    with pytest.raises(RefusedError, match="the store is away"):
        world.drain.verdict(0)


def test_who_is_ended_early_says_what_is_left() -> None:
    """A signal came: that is not done."""
    world = World(assigned=frozenset((A0, A1)))
    assert not world.over_after(3)
    with pytest.raises(IngestorError, match="1,000 rows landed, 20 offsets are left") as ended:
        world.drain.verdict(1_000)
    assert ended.value.exit_code == 1


def test_what_another_process_fenced_at_the_end_is_not_done() -> None:
    """Everything was in hand, and was dropped when it was to land; the table tells whether it has it all the same."""
    world = World(assigned=frozenset((A0, A1)), read=True, left={A0: 0, A1: 4})
    assert world.drain.over()
    world.dropped += 1
    with pytest.raises(IngestorError, match="another process committed meanwhile: 7 rows landed, 4 offsets are left"):
        world.drain.verdict(7)
    world.left = {A0: 0, A1: 0}
    world.drain.verdict(7)


def test_whoever_lacks_an_assignment_is_told_why_as_long_as_it_lasts() -> None:
    """Not in the first seconds, which every start takes."""
    world = World(rebalancing=True)
    world.over_after(9)
    assert world.told == []
    world.over_after(5)
    assert world.told[-1] == (
        "no assignment from the consumer group: group g rebalances and waits for its members, dead ones too (us, other)"
    )
    told = len(world.told)
    world.assigned = frozenset((A0, A1))
    world.over_after(20)
    assert len(world.told) == told
