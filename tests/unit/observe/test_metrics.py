from __future__ import annotations

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ingestor.observe.metrics import Level, Levels, Metrics
from ingestor.records import TopicPartition

ONE, TWO = TopicPartition("events", 1), TopicPartition("events", 2)
PARTITION_ONE = {"route": "r", "topic": "events", "partition": "1"}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def used() -> Metrics:
    """Return metrics on which every method was called."""
    metrics = Metrics()
    metrics.landed(
        "r",
        rows={ONE: 5, TWO: 1},
        payload_bytes=100,
        commit_seconds=0.2,
        write_seconds=0.1,
        age_seconds=3.0,
    )
    metrics.duplicates("r", 2)
    metrics.dead_letters("r", "events", 3)
    metrics.lost_offsets("r", ONE, 4)
    metrics.show_levels(lambda: Levels({"r": 1000}, [Level("r", ONE, 41, 9), Level("r", TWO, 7, None)]))
    metrics.rebalance("assigned")
    metrics.commit("r", "landed")
    metrics.failure("r", "retriable")
    metrics.retry("r", "conflict")
    metrics.breaker("s3://bucket", "open")
    return metrics


def test_the_names_and_labels_are_those_of_the_readme() -> None:
    families = text_string_to_metric_families(generate_latest(used().registry).decode())
    found = {
        sample.name: tuple(label for label in sample.labels if label != "le")
        for family in families
        for sample in family.samples
    }
    build = found.pop("ingestor_build_info")

    partition = ("partition", "route", "topic")
    assert {name: tuple(sorted(labels)) for name, labels in found.items()} == {
        "ingestor_records_total": partition,
        "ingestor_payload_bytes_total": ("route",),
        "ingestor_duplicates_skipped_total": ("route",),
        "ingestor_dead_letters_total": ("route", "topic"),
        "ingestor_failures_total": ("kind", "route"),
        "ingestor_retries_total": ("reason", "route"),
        "ingestor_commits_total": ("outcome", "route"),
        "ingestor_commit_seconds_bucket": ("route",),
        "ingestor_commit_seconds_count": ("route",),
        "ingestor_commit_seconds_sum": ("route",),
        "ingestor_storage_write_seconds_bucket": ("route",),
        "ingestor_storage_write_seconds_count": ("route",),
        "ingestor_storage_write_seconds_sum": ("route",),
        "ingestor_record_age_seconds_bucket": ("route",),
        "ingestor_record_age_seconds_count": ("route",),
        "ingestor_record_age_seconds_sum": ("route",),
        "ingestor_buffer_bytes": ("route",),
        "ingestor_committed_offset": partition,
        "ingestor_lag_records": partition,
        "ingestor_rebalances_total": ("event",),
        "ingestor_breaker_state": ("state", "store"),
        "ingestor_breaker_transitions_total": ("store",),
        "ingestor_lost_offsets_total": partition,
    }
    assert {"version", "python", "deltalake"} <= set(build)


def test_a_landed_batch_is_counted_per_partition() -> None:
    metrics = used()

    assert value(metrics, "ingestor_records_total", **PARTITION_ONE) == 5
    assert value(metrics, "ingestor_committed_offset", **PARTITION_ONE) == 41
    assert value(metrics, "ingestor_payload_bytes_total", route="r") == 100
    assert value(metrics, "ingestor_commit_seconds_sum", route="r") == 0.2
    assert value(metrics, "ingestor_storage_write_seconds_sum", route="r") == 0.1
    assert value(metrics, "ingestor_record_age_seconds_sum", route="r") == 3.0


def test_what_is_not_known_of_a_batch_is_not_observed() -> None:
    metrics = Metrics()

    metrics.landed("r", rows={}, payload_bytes=0, commit_seconds=0.2)

    assert value(metrics, "ingestor_record_age_seconds_count", route="r") is None
    assert value(metrics, "ingestor_storage_write_seconds_count", route="r") is None


def test_a_record_from_the_future_is_no_younger_than_now() -> None:
    metrics = Metrics()

    metrics.landed("r", rows={}, payload_bytes=0, commit_seconds=0, age_seconds=-5.0)

    assert value(metrics, "ingestor_record_age_seconds_sum", route="r") == 0


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("ingestor_duplicates_skipped_total", {"route": "r"}, 2),
        ("ingestor_dead_letters_total", {"route": "r", "topic": "events"}, 3),
        ("ingestor_lost_offsets_total", PARTITION_ONE, 4),
        ("ingestor_lag_records", PARTITION_ONE, 9),
        ("ingestor_buffer_bytes", {"route": "r"}, 1000),
        ("ingestor_rebalances_total", {"event": "assigned"}, 1),
        ("ingestor_commits_total", {"route": "r", "outcome": "landed"}, 1),
        ("ingestor_failures_total", {"route": "r", "kind": "retriable"}, 1),
        ("ingestor_retries_total", {"route": "r", "reason": "conflict"}, 1),
    ],
)
def test_every_event_has_its_series(name: str, labels: dict[str, str], expected: float) -> None:
    assert value(used(), name, **labels) == expected


def test_a_breaker_is_in_one_state_at_a_time() -> None:
    metrics = Metrics()

    metrics.breaker("s3://bucket", "open")
    metrics.breaker("s3://bucket", "half_open")

    states = {
        state: value(metrics, "ingestor_breaker_state", store="s3://bucket", state=state)
        for state in ("closed", "open", "half_open")
    }
    assert states == {"closed": 0, "open": 0, "half_open": 1}
    assert value(metrics, "ingestor_breaker_transitions_total", store="s3://bucket") == 2


def test_levels_are_those_of_the_moment_and_counters_stay() -> None:
    """A partition that went leaves no level behind; what it did stays counted."""
    metrics = used()
    assert value(metrics, "ingestor_committed_offset", **PARTITION_ONE) == 41

    metrics.show_levels(lambda: Levels({}, [Level("r", TWO, 8, 0)]))

    assert value(metrics, "ingestor_committed_offset", **PARTITION_ONE) is None
    assert value(metrics, "ingestor_lag_records", **PARTITION_ONE) is None
    assert value(metrics, "ingestor_buffer_bytes", route="r") is None
    assert value(metrics, "ingestor_records_total", **PARTITION_ONE) == 5
    assert value(metrics, "ingestor_committed_offset", **{**PARTITION_ONE, "partition": "2"}) == 8


def test_the_first_failure_of_a_route_is_a_step() -> None:
    """From 0, which is there from the start: a rate sees no series that begins at 1."""
    metrics = Metrics()
    metrics.known("r")
    metrics.breaker_made("s3://bucket")
    assert value(metrics, "ingestor_failures_total", route="r", kind="permanent") == 0
    assert value(metrics, "ingestor_commits_total", route="r", outcome="fenced") == 0
    assert value(metrics, "ingestor_breaker_state", store="s3://bucket", state="closed") == 1
    assert value(metrics, "ingestor_breaker_transitions_total", store="s3://bucket") == 0


def test_two_processes_in_one_do_not_share_series() -> None:
    used()

    assert value(Metrics(), "ingestor_records_total", **PARTITION_ONE) is None
