"""What is wrong, in one place: `/readyz`, `/actuator/health`, the page, the metrics and the log all say this.

Pure: it judges one snapshot, and what Kafka and the stores said last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ingestor.ingest.route import RouteView
    from ingestor.observe.snapshot import Snapshot


class State(StrEnum):
    """What a route is doing."""

    STARTING = "starting"  # Kafka or its table was not reached yet
    RUNNING = "running"
    WAITING = "waiting"  # for Kafka, for an assignment, or for its places in the table
    PAUSED = "paused"  # held back: its store is away or slow, or memory is full
    STOPPED = "stopped"  # by a failure that no retry mends


@dataclass(frozen=True, slots=True)
class Said:
    """What was heard last of those that a route may wait for."""

    kafka: str | None = None  # why Kafka did not answer, None if it did
    kafka_answered: bool = True  # ever
    stores: Mapping[str, str] = field(default_factory=dict)  # by route, why its store did not answer
    no_assignment: str = ""  # why the consumer group gives this process nothing


@dataclass(frozen=True, slots=True)
class RouteHealth:
    """One route's state, and why it is not running."""

    state: State
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that is wrong; ready if that is nothing."""

    routes: Mapping[str, RouteHealth]
    kafka: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()
    breaker: tuple[str, ...] = ()  # each of them is told under `storage`, too

    @property
    def reasons(self) -> list[str]:
        """Return why the process is not ready."""
        return [*self.kafka, *self.storage]

    @property
    def components(self) -> dict[str, str | None]:
        """Return what is wrong with each part; None if nothing is."""
        parts = {"kafka": self.kafka, "storage": self.storage, "breaker": self.breaker}
        return {**{name: "; ".join(found) or None for name, found in parts.items()}, "dead_letters": None}


def judge(names: Iterable[str], snapshot: Snapshot | None, said: Said) -> Health:
    """Return the health of these routes; without a snapshot they are being started."""
    if snapshot is None:
        return _starting(names, said)
    kafka = _kafka(snapshot, said)
    storage: list[str] = []
    down: list[str] = []
    routes: dict[str, RouteHealth] = {}
    for name, view in snapshot.routes.items():
        wrong = _wrong(view, said.stores.get(name))
        storage += [f"route {name} {why}" for why in wrong]
        if not view.answering:
            down.append(name)
        routes[name] = _route(view, kafka, wrong)
    breaker = (f"not closed for {', '.join(down)}",) if down else ()
    return Health(routes, tuple(kafka), tuple(storage), breaker)


def _starting(names: Iterable[str], said: Said) -> Health:
    kafka: list[str] = []
    if said.kafka is not None:
        kafka.append(f"starting: Kafka is away: {said.kafka}")
    elif not said.kafka_answered:
        kafka.append("starting: Kafka has not answered yet")
    storage = [f"starting: route {name}: {why}" for name, why in said.stores.items()]
    if not kafka and not storage:
        storage = ["starting: the tables are being opened"]
    why = "; ".join([*kafka, *storage])
    return Health({name: RouteHealth(State.STARTING, why) for name in names}, tuple(kafka), tuple(storage))


def _kafka(snapshot: Snapshot, said: Said) -> list[str]:
    if said.kafka is not None:
        return [f"Kafka is away: {said.kafka}"]
    if not snapshot.joined:
        return ["no assignment from the consumer group yet" + (f": {said.no_assignment}" if said.no_assignment else "")]
    return []


def _wrong(view: RouteView, store: str | None) -> list[str]:
    """Return what is wrong with one route, the rest of a sentence that begins with its name."""
    if view.failure is not None:
        return [f"was stopped: {view.failure}"]
    wrong = []
    if not view.answering:
        wrong.append(f"is held back: breaker is {view.breaker.value}, the table's store does not answer")
        if store:
            wrong[0] += f" ({store})"
    if view.pending:
        wrong.append(f"waits for the ledger to be read for {view.pending} partitions")
    return wrong


def _route(view: RouteView, kafka: list[str], wrong: list[str]) -> RouteHealth:
    why = "; ".join([*wrong, *kafka]) or None
    if view.failure is not None:
        return RouteHealth(State.STOPPED, str(view.failure))
    if view.paused:
        return RouteHealth(State.PAUSED, why or view.held)
    if why is not None:
        return RouteHealth(State.WAITING, why)
    if not view.assigned:
        return RouteHealth(State.WAITING, "no partition is assigned to this process")
    return RouteHealth(State.RUNNING)
