"""What the process says of itself, over a pipeline and a cluster that are told what to say."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ingestor.errors import DataLossError, Unavailable
from ingestor.ingest.breaker import BreakerState
from ingestor.ingest.committer import Landed
from ingestor.ingest.lane import Flushed
from ingestor.ingest.placement import Placed
from ingestor.ingest.policy import FlushReason
from ingestor.ingest.put import Outcome
from ingestor.ingest.route import RouteView
from ingestor.ingest.stager import Staged
from ingestor.kafka.broker import Watermarks
from ingestor.ledger import Placement
from ingestor.observe.health import State
from ingestor.observe.metrics import Metrics
from ingestor.observe.status import Status
from ingestor.observe.watch import Watch
from ingestor.records import TopicPartition
from tests.support.process.ingestors import eventually
from tests.support.settings import checked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ingestor.ingest.pipeline import Pipeline

ONE, TWO = TopicPartition("events", 1), TopicPartition("events", 2)
HEALTHY = RouteView(
    breaker=BreakerState.CLOSED,
    answering=True,
    paused=False,
    pending=0,
    positions={ONE: 10, TWO: 20},
    in_hand={},
    draft_bytes=5,
    assigned=2,
)


class FakeCluster:
    """Says which ends partitions have; may be away."""

    def __init__(self) -> None:
        self.ends = {ONE: 15, TWO: 20}
        self.open_at: dict[TopicPartition, int] = {}
        self.away: Exception | None = None
        self.deleted: set[str] = set()
        self.low: dict[TopicPartition, int] = {}
        self.written: dict[TopicPartition, int | None] = {}
        self.asked = threading.Semaphore(0)

    def topics(self, *, timeout: float | None = None) -> dict[str, int]:  # noqa: ARG002 - it answers at once
        if self.away is not None:
            raise self.away
        return {"events": 3}

    def first_written(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int | None]:
        return {tp: self.written[tp] for tp in spans if tp in self.written}

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        self.asked.release()
        if self.away is not None:
            raise self.away
        if self.deleted & {tp.topic for tp in tps}:
            raise Unavailable("unknown topic")
        return {tp: Watermarks(self.low.get(tp, 0), self.ends[tp], self.open_at.get(tp, self.ends[tp])) for tp in tps}


@dataclass
class FakePipeline:
    """Shows one route as told."""

    joined: bool = True
    route: RouteView = field(default=HEALTHY)
    memory: tuple[int, int] = (1, 2)

    def view(self) -> dict[str, RouteView]:
        return {"events": self.route}


class Desk:
    """A status, and all it is told by."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.watch = Watch(Metrics())
        self.status = Status(
            checked(), self.watch, self.cluster, stuck_seconds=30, first_written=self.cluster.first_written
        )
        self.pipeline = FakePipeline()

    def tick(self, **changes: Any) -> None:
        """Let the loop turn, with the route changed."""
        self.pipeline.route = replace(self.pipeline.route, **changes)
        self.status._shown_at = 0.0
        self.status.tick(cast("Pipeline", self.pipeline))

    def partitions(self) -> dict[TopicPartition, dict[str, Any]]:
        shown = self.status.status()["routes"]["events"]["partitions"]
        return {TopicPartition(each["topic"], each["partition"]): each for each in shown}

    def lag(self) -> dict[TopicPartition, int | None]:
        return {tp: each["lag"] for tp, each in self.partitions().items()}

    def level(self, name: str, tp: TopicPartition) -> float | None:
        labels = {"route": "events", "topic": tp.topic, "partition": str(tp.partition)}
        return self.watch.metrics.registry.get_sample_value(name, labels)

    def gauge(self, name: str, **labels: str) -> float:
        found = self.watch.metrics.registry.get_sample_value(name, labels)
        assert found is not None, name
        return found

    def state(self) -> str:
        """The route's state, as the page and the gauges have it."""
        (found,) = (each for each in State if self.gauge("ingestor_route_state", route="events", state=each) == 1)
        assert self.status.status()["routes"]["events"]["state"] == found
        return str(found)

    def land(self, **last: int) -> None:
        """Tell that a batch landed, of partitions that are named by number."""
        tps = {TopicPartition("events", int(number[1:])): offset for number, offset in last.items()}
        staged = Staged("c1", (), dict.fromkeys(tps), tps, dict.fromkeys(tps, 1), last_ms=dict.fromkeys(tps, 5000))
        self.watch.flushed("events", Flushed(staged, Landed(3, Outcome.LANDED, 0, 0.1), FlushReason.ROWS, ()))


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.status.end()


def test_a_start_that_waits_is_live_and_not_ready(desk: Desk) -> None:
    assert desk.status.live()
    eventually(lambda: desk.status.readiness() == ["starting: the tables are being opened"])
    assert desk.status.status()["routes"]["events"]["state"] == "starting"


def test_a_loop_that_does_not_turn_is_not_live(desk: Desk) -> None:
    desk.status._moved_at -= 31
    assert not desk.status.live()
    desk.status.moved()
    assert desk.status.live()


def test_everything_well_is_ready(desk: Desk) -> None:
    desk.tick()
    assert desk.status.readiness() == []
    assert not any(desk.status.components().values())


@pytest.mark.parametrize(
    ("changes", "reason", "part"),
    [
        ({"breaker": BreakerState.OPEN, "answering": False}, "breaker is open", "breaker"),
        ({"breaker": BreakerState.HALF_OPEN, "answering": False}, "breaker is half_open", "breaker"),
        ({"pending": 2}, "waits for the ledger to be read for 2 partitions", "storage"),
        ({"failure": DataLossError("gone", hint="skip it")}, "was stopped: gone — skip it", "storage"),
    ],
)
def test_every_reason_against_is_named(desk: Desk, changes: dict[str, Any], reason: str, part: str) -> None:
    desk.tick(**changes)
    (found,) = desk.status.readiness()
    assert reason in found
    assert desk.status.components()[part]


def test_a_store_that_answered_its_first_probe_is_ready(desk: Desk) -> None:
    """Or an idle route would never be: only commits close a breaker."""
    desk.tick(breaker=BreakerState.HALF_OPEN, answering=True)
    assert desk.status.readiness() == []


def test_no_assignment_is_no_readiness(desk: Desk) -> None:
    desk.pipeline.joined = False
    desk.tick()
    assert desk.status.readiness() == ["no assignment from the consumer group yet"]


def test_the_lag_comes_without_traffic(desk: Desk) -> None:
    """Soon after partitions were assigned, from Kafka's stable ends."""
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    assert desk.level("ingestor_lag_records", ONE) == 5


def test_the_lag_ends_at_an_open_transaction(desk: Desk) -> None:
    desk.cluster.open_at[ONE] = 12
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 2, TWO: 0})
    assert desk.partitions()[ONE]["open_transaction_at"] == 12


def test_what_was_read_and_has_not_landed_is_lag(desk: Desk) -> None:
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=7, p2=19)
    desk.tick(in_hand={ONE: 1000})
    eventually(lambda: desk.lag() == {ONE: 7, TWO: 0})


def test_a_partition_that_went_leaves_no_series(desk: Desk) -> None:
    """Not even when a batch of it lands afterwards, or its place is found."""
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=7, p2=19)
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    assert desk.level("ingestor_committed_offset", ONE) == 7

    desk.watch.gone("events", [ONE])
    desk.land(p1=9)
    desk.watch.looked("events", Placed({ONE: 9}, {ONE: Placement(10, 10)}, {}))
    desk.tick(positions={TWO: 20})

    assert desk.level("ingestor_committed_offset", ONE) is None
    assert desk.level("ingestor_lag_records", ONE) is None
    assert desk.level("ingestor_committed_offset", TWO) == 19
    assert ONE not in desk.watch.committed["events"]


def test_a_stopped_route_falls_behind(desk: Desk) -> None:
    """It reads no more, so its lag grows from where it stands."""
    desk.watch.rebalanced("assigned", [ONE])
    desk.land(p1=4)
    desk.tick(positions={}, failure=DataLossError("gone", hint="skip it"))
    desk.status._lag.ask_soon()
    eventually(lambda: desk.lag() == {ONE: 10})


def test_a_topic_that_was_deleted_does_not_hide_the_lag_of_others(desk: Desk) -> None:
    other = TopicPartition("deleted", 0)
    desk.cluster.deleted.add("deleted")
    desk.tick(positions={ONE: 10, other: 3})
    eventually(lambda: desk.lag() == {ONE: 5, other: None})
    assert desk.status.components()["kafka"] is None


def test_a_topic_that_goes_keeps_its_last_lag(desk: Desk) -> None:
    """Kafka answers, but no more of this one."""
    other = TopicPartition("deleted", 0)
    desk.cluster.ends[other] = 7
    desk.tick(positions={ONE: 10, other: 3})
    eventually(lambda: desk.lag() == {ONE: 5, other: 4})
    desk.cluster.deleted.add("deleted")
    desk.cluster.ends[ONE] = 16
    desk.status._lag.ask_soon()
    eventually(lambda: desk.lag() == {ONE: 6, other: 4})
    assert desk.status.components()["kafka"] is None


def test_a_kafka_that_is_away_is_told_and_the_last_lag_stays(desk: Desk) -> None:
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    desk.cluster.away = Unavailable("nobody there")
    desk.status._lag.ask_soon()
    eventually(lambda: desk.status.components()["kafka"] == "Kafka is away: nobody there")
    assert desk.lag() == {ONE: 5, TWO: 0}
    assert desk.status.readiness() == ["Kafka is away: nobody there"]


def test_a_kafka_that_is_away_is_told_in_one_voice(desk: Desk) -> None:
    """Probes, page, gauges: all name Kafka, and no route is running; then all is well again."""
    desk.tick()
    eventually(lambda: desk.gauge("ingestor_kafka_up") == 1)
    assert desk.state() == "running"

    desk.cluster.away = Unavailable("nobody there")
    desk.status._lag.ask_soon()
    eventually(lambda: desk.gauge("ingestor_kafka_up") == 0)
    shown = desk.status.status()
    assert shown["reasons"] == desk.status.readiness() == ["Kafka is away: nobody there"]
    assert (shown["ready"], shown["kafka_up"], shown["stale"]) == (False, False, True)
    assert desk.status.components()["kafka"] == "Kafka is away: nobody there"
    assert (desk.state(), shown["routes"]["events"]["why"]) == ("waiting", "Kafka is away: nobody there")

    desk.cluster.away = None
    eventually(lambda: desk.status.readiness() == [])
    assert desk.state() == "running"
    assert not desk.status.status()["stale"]


def test_an_outage_that_takes_the_partitions_keeps_what_was_known(desk: Desk) -> None:
    """The session ends after a while without Kafka: lag and age stay, and the age goes on."""
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=9, p2=19)
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    desk.cluster.away = Unavailable("nobody there")
    desk.status._lag.ask_soon()
    eventually(lambda: desk.gauge("ingestor_kafka_up") == 0)

    desk.watch.gone("events", [ONE, TWO])
    desk.pipeline.joined = False
    desk.tick(positions={}, assigned=0)
    desk.status._last = (desk.status._last[0], 0.0) if desk.status._last else None
    assert desk.lag() == {ONE: 5, TWO: 0}
    assert desk.level("ingestor_lag_records", ONE) == 5
    assert desk.level("ingestor_committed_offset", ONE) == 9
    assert desk.gauge("ingestor_behind_seconds", route="events") > 0

    desk.cluster.away = None
    eventually(lambda: desk.lag() == {}, failure=lambda: "now they may be somebody else's")


def test_a_loss_of_partitions_to_others_leaves_nothing(desk: Desk) -> None:
    """Kafka answers: whoever has them now shows them."""
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    desk.pipeline.joined = False
    desk.tick(positions={}, assigned=0)
    desk.status._last = (desk.status._last[0], 0.0) if desk.status._last else None
    assert desk.lag() == {}


def test_the_headline_is_the_sum_of_the_rows(desk: Desk) -> None:
    """Also of what was read after Kafka was asked for its ends."""
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=7, p2=19)
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    desk.tick(in_hand={ONE: 1000}, positions={ONE: 9008, TWO: 20})
    assert desk.lag() == {ONE: 9000, TWO: 0}
    assert desk.status.status()["lag"] == 9000
    assert desk.level("ingestor_lag_records", ONE) == 9000


def test_seconds_behind_count_from_the_first_record_in_hand(desk: Desk) -> None:
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=7, p2=19)
    desk.tick(in_hand={ONE: int((time.time() - 100) * 1000)})
    eventually(lambda: desk.lag() == {ONE: 7, TWO: 0})
    assert 100 <= desk.gauge("ingestor_behind_seconds", route="events") < 130


def missing_for(desk: Desk, tp: TopicPartition, seconds: float) -> None:
    """Let a partition's next record have been missed for so long, and Kafka be asked again."""
    assert desk.gauge("ingestor_behind_seconds", route="events") >= 0  # it is missed from now on
    missed = desk.status._ages._missed
    missed[tp] = replace(missed[tp], since=time.time() - seconds)
    desk.status._lag.ask_soon()


def test_seconds_behind_of_what_was_not_read_are_looked_up(desk: Desk) -> None:
    desk.cluster.written = {ONE: int((time.time() - 500) * 1000)}
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    missing_for(desk, ONE, 60)
    eventually(lambda: desk.gauge("ingestor_behind_seconds", route="events") >= 500)


def test_what_can_not_be_looked_up_costs_nothing_but_the_answer(desk: Desk) -> None:
    """Kafka is asked on: else `ingestor_kafka_up` would stay as it is for ever."""
    asked = threading.Semaphore(0)

    def broken(_spans: object) -> dict[TopicPartition, int | None]:
        asked.release()
        raise ValueError("no such option")

    desk.status._first_written = broken
    desk.tick()
    eventually(lambda: desk.lag() == {ONE: 5, TWO: 0})
    missing_for(desk, ONE, 60)
    assert asked.acquire(timeout=30)
    desk.cluster.ends[ONE] = 16
    desk.status._lag.ask_soon()
    eventually(lambda: desk.lag() == {ONE: 6, TWO: 0})


def test_a_stopped_route_stays_stopped_in_the_gauges(desk: Desk) -> None:
    desk.tick(failure=DataLossError("gone", hint="skip it"))
    assert desk.state() == "stopped"
    desk.tick()
    assert desk.state() == "stopped"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"breaker": BreakerState.OPEN, "answering": False, "paused": True, "held": "breaker open"}, "paused"),
        ({"paused": True, "held": "memory is full"}, "paused"),
        ({"pending": 1}, "waiting"),
        ({"assigned": 0, "positions": {}}, "waiting"),
    ],
)
def test_a_route_that_waits_is_not_running(desk: Desk, changes: dict[str, Any], state: str) -> None:
    desk.tick(**changes)
    assert desk.state() == state
    assert desk.status.status()["routes"]["events"]["why"]


def test_every_gauge_is_there_from_the_start(desk: Desk) -> None:
    """Before Kafka or a table was reached: no alert goes blind."""
    assert desk.state() == "starting"
    for name in ("assigned_partitions", "last_commit_timestamp_seconds", "last_poll_timestamp_seconds"):
        assert desk.gauge(f"ingestor_{name}", route="events") == 0
    assert desk.gauge("ingestor_behind_seconds", route="events") == 0
    assert desk.gauge("ingestor_memory_limit_bytes") == 256 << 20
    assert desk.gauge("ingestor_memory_bytes") == 0
    assert desk.gauge("process_start_time_seconds") > 0


def test_gauges_follow_the_loop(desk: Desk) -> None:
    desk.watch.rebalanced("assigned", [ONE, TWO])
    desk.land(p1=7)
    desk.watch.lies_in("events", "s3://lake")
    desk.cluster.low = {ONE: 3}
    desk.tick()
    now = time.time()
    assert desk.gauge("ingestor_assigned_partitions", route="events") == 2
    assert 0 <= now - desk.gauge("ingestor_last_commit_timestamp_seconds", route="events") < 60
    assert 0 <= now - desk.gauge("ingestor_last_poll_timestamp_seconds", route="events") < 60
    assert desk.gauge("ingestor_memory_bytes") == 128 << 20  # half of what may be held
    assert desk.gauge("ingestor_route_info", route="events", store="s3://lake") == 1
    eventually(lambda: desk.level("ingestor_retention_headroom_records", ONE) == 7)


def test_the_log_says_what_the_probes_say(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Once when something becomes wrong, and once when all is well."""
    caplog.set_level("INFO", logger="ingestor")
    desk.tick()
    eventually(lambda: desk.gauge("ingestor_kafka_up") == 1)
    desk.tick()
    desk.tick(pending=1)
    desk.tick(pending=2)
    desk.tick(pending=0)
    told = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    events = [(each["event"], each.get("reasons")) for each in told if each["event"] in ("ready", "not ready")]
    assert events[-2:] == [
        ("not ready", ["route events waits for the ledger to be read for 1 partitions"]),
        ("ready", None),
    ]


def test_a_commit_is_shown_with_what_it_holds(desk: Desk) -> None:
    desk.watch.rebalanced("assigned", [ONE])
    desk.land(p1=7)
    desk.tick()
    (commit,) = desk.status.status()["commits"]
    assert (commit["version"], commit["rows"], commit["seconds"], commit["commit_id"]) == (3, 1, 0.1, "c1")
    assert desk.partitions()[ONE]["record_at"] == 5
    assert desk.partitions()[ONE]["committed_offset"] == 7


def test_troubles_are_shown_with_what_to_do(desk: Desk) -> None:
    desk.watch.storage_failed("events", Unavailable("connection refused"))
    desk.watch.gave_up("events", DataLossError("records are gone", hint="skip them"))
    found = [(each["level"], each["what"], each["hint"]) for each in desk.status.status()["errors"]]
    assert found == [
        ("error", "route stopped: records are gone", "skip them"),
        ("warning", "route events: connection refused", "it is tried again by itself, and nothing is lost"),
    ]
