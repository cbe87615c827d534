"""Levels that are there from the start of a process to its end, whatever is away: what alerts can be built on.

They are asked for at every scrape, so that none is older than that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ingestor.observe.health import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ingestor.records import TopicPartition


@dataclass(frozen=True, slots=True)
class RouteGauges:
    """One route at one moment; times are Unix times, 0 for never."""

    state: State
    store: str = ""  # where its table lies, "" until that is known
    assigned: int = 0
    committed_at: float = 0.0
    polled_at: float = 0.0
    behind_seconds: float = 0.0
    headroom: Sequence[tuple[TopicPartition, int]] = ()  # records between Kafka's first and the first that is missing


@dataclass(frozen=True, slots=True)
class After:
    """What becomes of a route's rows after they have landed; every process sees the same."""

    unparsed_seconds: float  # age of the oldest commit of raw that parsing has not taken, 0 if there is none
    quarantined: int  # rows that came into the quarantine table since this process looked first
    unsent_seconds: float  # age of the oldest dead letters that are not published, 0 if none, or nobody publishes


@dataclass(frozen=True, slots=True)
class Standing:
    """A process at one moment."""

    kafka_up: bool
    memory_bytes: int
    memory_limit_bytes: int
    routes: Mapping[str, RouteGauges] = field(default_factory=dict)
    after: Mapping[str, After] = field(default_factory=dict)


_BY_ROUTE = (
    ("ingestor_assigned_partitions", "Partitions that are this process's.", "assigned"),
    ("ingestor_last_commit_timestamp_seconds", "When this process last committed, 0 if never.", "committed_at"),
    ("ingestor_last_poll_timestamp_seconds", "When Kafka was last polled for the route, 0 if never.", "polled_at"),
    ("ingestor_behind_seconds", "Age of the oldest record that is not in the table, 0 if none.", "behind_seconds"),
)


class Gauges(Collector):
    """The gauges of one process, and Prometheus's own of any process (`process_*`)."""

    def __init__(self, registry: CollectorRegistry, standing: Callable[[], Standing]) -> None:
        self._standing = standing
        registry.register(self)
        show_process(registry)

    def collect(self) -> Iterable[Metric]:
        """Return every gauge as it is now."""
        now = self._standing()
        yield GaugeMetricFamily("ingestor_kafka_up", "1 if Kafka answers.", value=int(now.kafka_up))
        yield GaugeMetricFamily(
            "ingestor_memory_bytes", "What records take of `memory`; at the limit reading pauses.", now.memory_bytes
        )
        yield GaugeMetricFamily("ingestor_memory_limit_bytes", "`memory`, as configured.", now.memory_limit_bytes)
        yield from _states(now.routes)
        for name, text, attribute in _BY_ROUTE:
            family = GaugeMetricFamily(name, text, labels=("route",))
            for route, found in now.routes.items():
                family.add_metric((route,), getattr(found, attribute))
            yield family
        headroom = GaugeMetricFamily(
            "ingestor_retention_headroom_records",
            "Offsets from the first one that Kafka still has to the first one that the table lacks.",
            labels=("route", "topic", "partition"),
        )
        for route, found in now.routes.items():
            for tp, records in found.headroom:
                headroom.add_metric((route, tp.topic, str(tp.partition)), records)
        yield headroom
        yield from _after(now.after)


def show_process(registry: CollectorRegistry) -> None:
    """Show what Prometheus's clients show of any process: CPU, memory, descriptors, start."""
    ProcessCollector(registry=registry)


def _states(routes: Mapping[str, RouteGauges]) -> Iterable[Metric]:
    states = GaugeMetricFamily(
        "ingestor_route_state",
        "1 for the state that a route is in, 0 for the others.",
        labels=("route", "state"),
    )
    info = GaugeMetricFamily(
        "ingestor_route_info", "1, with the store that a route's table lies in.", labels=("route", "store")
    )
    for route, found in routes.items():
        for state in State:
            states.add_metric((route, state.value), int(found.state is state))
        if found.store:
            info.add_metric((route, found.store), 1)
    return states, info


def _after(routes: Mapping[str, After]) -> Iterable[Metric]:
    unparsed = GaugeMetricFamily(
        "ingestor_unparsed_seconds",
        "Age of the oldest commit that the parse job has not taken, 0 if none.",
        labels=("route",),
    )
    quarantined = CounterMetricFamily(
        "ingestor_quarantined_rows", "Rows that came into the quarantine table.", labels=("route",)
    )
    unsent = GaugeMetricFamily(
        "ingestor_unsent_letters_seconds",
        "Age of the oldest dead letters that are not published, 0 if none, or if nobody ever published.",
        labels=("route",),
    )
    for route, found in routes.items():
        unparsed.add_metric((route,), found.unparsed_seconds)
        quarantined.add_metric((route,), found.quarantined)
        unsent.add_metric((route,), found.unsent_seconds)
    return unparsed, quarantined, unsent
