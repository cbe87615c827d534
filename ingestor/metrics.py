"""What the ingestor counts, for Prometheus: the only importer of its client besides `http`.

Every method is called per batch, commit or rebalance, never per record. The names and labels are a contract (README,
"Metrics"); dashboards and alerts depend on them.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ingestor.records import TopicPartition

_BREAKER_STATES = ("closed", "open", "half_open")
_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_AGE_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 6 * 3600, 24 * 3600)
_PARTITION = ("route", "topic", "partition")


class Metrics:
    """All series of one process, in a registry of their own. Safe to use from any thread."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter that nobody asked for
        self.registry = registry = CollectorRegistry()
        self._records = Counter("ingestor_records_total", "Records landed.", _PARTITION, registry=registry)
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
            _PARTITION,
            registry=registry,
        )
        self._committed = Gauge(
            "ingestor_committed_offset", "Offset of the last record landed.", _PARTITION, registry=registry
        )
        self._lag = Gauge(
            "ingestor_lag_records",
            "Offsets between the next one to land and the last stable one.",
            _PARTITION,
            registry=registry,
        )
        self._buffer = Gauge("ingestor_buffer_bytes", "Bytes of records held in memory.", ("route",), registry=registry)
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
        last: Mapping[TopicPartition, int],
        commit_seconds: float,
        write_seconds: float | None = None,
        age_seconds: float | None = None,
    ) -> None:
        """Count a batch that is in the table; `last` is the offset of each partition's last row."""
        for tp, number in rows.items():
            self._records.labels(route, *tp).inc(number)
        for tp, offset in last.items():
            self.committed_offset(route, tp, offset)
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

    def committed_offset(self, route: str, tp: TopicPartition, offset: int) -> None:
        """Set the offset of a partition's last record in the table."""
        self._committed.labels(route, *tp).set(offset)

    def lag(self, route: str, tp: TopicPartition, number: int) -> None:
        """Set how many offsets a partition is behind."""
        self._lag.labels(route, *tp).set(number)

    def buffer_bytes(self, route: str, number: int) -> None:
        """Set how many bytes a route holds in memory."""
        self._buffer.labels(route).set(number)

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

    def breaker(self, store: str, state: str) -> None:
        """Set the state that a store's breaker has moved to."""
        for known in _BREAKER_STATES:
            self._breaker.labels(store, known).set(known == state)
        self._transitions.labels(store).inc()

    def forget(self, route: str, tps: Collection[TopicPartition]) -> None:
        """Remove the levels of partitions that are no longer ours: their new owner shows them.

        Counters stay: what happened here has happened, and a sum over them must not fall.
        """
        for tp in tps:
            for gauge in (self._committed, self._lag):
                gauge.remove(route, *tp)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("ingestor", "confluent-kafka", "deltalake", "pyarrow"):
        label = {"ingestor": "version"}.get(package, package.replace("-", "_"))
        try:
            found[label] = version(package)
        except PackageNotFoundError:
            found[label] = "unknown"
    return found
