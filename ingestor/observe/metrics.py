"""What the ingestor counts, for Prometheus. Its client is imported here and in `gauges` only.

Every method is called per batch, commit or rebalance, never per record. The names and labels are a contract
(docs/operations.md); dashboards and alerts depend on them.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ingestor import DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client.core import Metric

    from ingestor.records import TopicPartition

_LABELS = ("route", "topic", "partition")
_BREAKER_STATES = ("closed", "open", "half_open")
_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_AGE_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 6 * 3600, 24 * 3600)
_OUTCOMES = ("landed", "landed_unanswered", "conflict", "fenced", "failed")
_KINDS = ("retriable", "permanent")


@dataclass(frozen=True, slots=True)
class Levels:
    """What rises and falls, as it is at one moment: only of partitions that are ours."""

    buffer_bytes: Mapping[str, int] = field(default_factory=dict)
    partitions: Sequence[Level] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One partition's part of it; None for what is not known."""

    route: str
    tp: TopicPartition
    committed: int | None
    lag: int | None


class Metrics:
    """All series of one process, in a registry of their own. Safe to use from any thread."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nobody asked for
        self.registry = registry = CollectorRegistry()
        self._bytes = Counter("ingestor_payload_bytes_total", "Payload bytes landed.", ("route",), registry=registry)
        self._duplicates = Counter(
            "ingestor_duplicates_skipped_total",
            "Records delivered again that the table had already.",
            ("route",),
            registry=registry,
        )
        self._dead_letters = Counter(
            "ingestor_dead_letters_total", "Dead letters published.", ("route", "topic"), registry=registry
        )
        self._lost = Counter(
            "ingestor_lost_offsets_total",
            "Offsets that Kafka no longer had and on_data_loss=skip passed over.",
            _LABELS,
            registry=registry,
        )
        self._partitions = _Partitions()
        registry.register(self._partitions)
        self._rebalances = Counter(
            "ingestor_rebalances_total", "Changes of the assignment.", ("event",), registry=registry
        )
        self._add_commits(registry)
        self._add_failures(registry)
        Info("ingestor_build", "Versions of what runs.", registry=registry).info(_versions())

    def _add_commits(self, registry: CollectorRegistry) -> None:
        self._commits = Counter(
            "ingestor_commits_total", "How tries to commit ended.", ("route", "outcome"), registry=registry
        )
        self._commit_seconds = Histogram(
            "ingestor_commit_seconds",
            "From the first try of a commit to its landing.",
            ("route",),
            buckets=_COMMIT_SECONDS,
            registry=registry,
        )
        self._write_seconds = Histogram(
            "ingestor_storage_write_seconds",
            "Time to make a data file durable.",
            ("route",),
            buckets=_COMMIT_SECONDS,
            registry=registry,
        )
        self._age = Histogram(
            "ingestor_record_age_seconds",
            "Age of a commit's newest record by its Kafka timestamp when it became visible; one per commit.",
            ("route",),
            buckets=_AGE_SECONDS,
            registry=registry,
        )

    def _add_failures(self, registry: CollectorRegistry) -> None:
        self._failures = Counter(
            "ingestor_failures_total", "Failed storage calls.", ("route", "kind"), registry=registry
        )
        self._retries = Counter(
            "ingestor_retries_total", "Calls and commits tried again.", ("route", "reason"), registry=registry
        )
        self._breaker = Gauge(
            "ingestor_breaker_state",
            "1 for the state that a store's breaker is in, 0 for the others.",
            ("store", "state"),
            registry=registry,
        )
        self._transitions = Counter(
            "ingestor_breaker_transitions_total", "Changes of a breaker's state.", ("store",), registry=registry
        )

    def landed(
        self,
        route: str,
        *,
        rows: Mapping[TopicPartition, int],
        payload_bytes: int,
        commit_seconds: float,
        write_seconds: float | None = None,
        age_seconds: float | None = None,
    ) -> None:
        """Count a batch that is in the table."""
        for tp, number in rows.items():
            self._partitions.records[route, tp] = self._partitions.records.get((route, tp), 0) + number
        self._bytes.labels(route).inc(payload_bytes)
        self._commit_seconds.labels(route).observe(commit_seconds)
        if write_seconds is not None:
            self._write_seconds.labels(route).observe(write_seconds)
        if age_seconds is not None:
            self._age.labels(route).observe(max(0.0, age_seconds))  # producers' clocks may be ahead

    def duplicates(self, route: str, number: int) -> None:
        """Count records that came again and were left out."""
        self._duplicates.labels(route).inc(number)

    def dead_letters(self, route: str, topic: str, number: int) -> None:
        """Count dead letters of a source topic that were published."""
        self._dead_letters.labels(route, topic).inc(number)

    def lost_offsets(self, route: str, tp: TopicPartition, number: int) -> None:
        """Count offsets that were passed over because Kafka no longer has them."""
        self._lost.labels(route, *tp).inc(number)

    def show_levels(self, levels: Callable[[], Levels]) -> None:
        """Ask for the levels at every scrape: so no partition that went leaves a series behind."""
        self._partitions.ask = levels

    def known(self, route: str) -> None:
        """Begin a route's counters at 0, so that their first step is seen as one."""
        for outcome in _OUTCOMES:
            self._commits.labels(route, outcome)
        for kind in _KINDS:
            self._failures.labels(route, kind)
        self._bytes.labels(route)
        self._duplicates.labels(route)

    def rebalance(self, event: str) -> None:
        """Count a change of the assignment: assigned, revoked or lost."""
        self._rebalances.labels(event).inc()

    def commit(self, route: str, outcome: str) -> None:
        """Count how a try to commit ended: landed, landed_unanswered, conflict, fenced or failed."""
        self._commits.labels(route, outcome).inc()

    def failure(self, route: str, kind: str) -> None:
        """Count a storage call that failed: retriable or permanent."""
        self._failures.labels(route, kind).inc()

    def retry(self, route: str, reason: str) -> None:
        """Count something that is tried again."""
        self._retries.labels(route, reason).inc()

    def breaker_made(self, store: str) -> None:
        """Show a store's breaker, which is closed at first."""
        self._show_breaker(store, "closed")
        self._transitions.labels(store)

    def breaker(self, store: str, state: str) -> None:
        """Set the state that a store's breaker has moved to."""
        self._show_breaker(store, state)
        self._transitions.labels(store).inc()

    def _show_breaker(self, store: str, state: str) -> None:
        for known in _BREAKER_STATES:
            self._breaker.labels(store, known).set(known == state)


class _Partitions(Collector):
    """What there is of each partition: records counted for good, for a sum over counters must not fall; and levels.

    How a partition stands is its owner's to show, so the levels are asked for instead of being kept.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[str, TopicPartition], int] = {}
        self.ask: Callable[[], Levels] = Levels

    def collect(self) -> Iterable[Metric]:
        levels = self.ask()
        records = CounterMetricFamily("ingestor_records", "Records landed.", labels=_LABELS)
        for (route, tp), number in list(self.records.items()):
            records.add_metric((route, tp.topic, str(tp.partition)), number)
        committed = GaugeMetricFamily("ingestor_committed_offset", "Offset of the last record landed.", labels=_LABELS)
        lag = GaugeMetricFamily(
            "ingestor_lag_records", "Offsets between the next one to land and the last stable one.", labels=_LABELS
        )
        for level in levels.partitions:
            labels = (level.route, level.tp.topic, str(level.tp.partition))
            for family, value in ((committed, level.committed), (lag, level.lag)):
                if value is not None:
                    family.add_metric(labels, value)
        buffer = GaugeMetricFamily("ingestor_buffer_bytes", "Bytes of records held in memory.", labels=("route",))
        for route, size in levels.buffer_bytes.items():
            buffer.add_metric((route,), size)
        return records, committed, lag, buffer


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return all series in the form that an Accept header asks for, and that form's content type."""
    try:
        encoder, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number: any form will do
        encoder, content_type = choose_encoder("")
    return encoder(registry), content_type


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in (DISTRIBUTION, "confluent-kafka", "deltalake", "pyarrow"):
        label = {DISTRIBUTION: "version"}.get(package, package.replace("-", "_"))
        try:
            found[label] = version(package)
        except PackageNotFoundError:
            found[label] = "unknown"
    return found
