"""The quick encoder says what the client's own would say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from ingestor.observe.exposition import Exposition
from ingestor.observe.metrics import Level, Levels, Metrics
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOSTILE = 'a"b\\nc\nd{}é'


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics()
    tps = [TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition(HOSTILE, 0)]
    for route in ("r", HOSTILE):
        metrics.known(route)
        metrics.landed(route, rows=dict.fromkeys(tps, 5), payload_bytes=9, commit_seconds=0.1)
    metrics.show_levels(lambda: Levels({"r": 5}, [Level(HOSTILE, tp, -1, 2**53) for tp in tps]))
    return metrics


def everything(families: Iterable[Metric]) -> dict[str, tuple[str, str, list[tuple[object, ...]]]]:
    return {
        family.name: (
            family.type,
            family.documentation,
            sorted((s.name, sorted(s.labels.items()), s.value) for s in family.samples),
        )
        for family in families
    }


def test_it_is_what_the_client_writes(metrics: Metrics) -> None:
    """Line order aside; also for names that need escapes."""
    body, content_type = Exposition(metrics.registry).encode("")
    assert content_type.startswith("text/plain")
    assert everything(parse(body.decode())) == everything(parse(generate_latest(metrics.registry).decode()))
    assert b'ingestor_records_total{route="r",topic="events",partition="1"} 5\n' in body


def test_it_is_what_the_client_writes_as_openmetrics(metrics: Metrics) -> None:
    body, content_type = Exposition(metrics.registry).encode(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert body.count(b"# EOF") == 1
    assert body.endswith(b"# EOF\n")
    expected = generate_openmetrics(metrics.registry).decode()  # type: ignore[no-untyped-call]
    found, wanted = (everything(parse_openmetrics(text)) for text in (body.decode(), expected))  # type: ignore[no-untyped-call]
    assert found == wanted


def test_labels_are_remembered_up_to_a_limit(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestor.observe.exposition._LABELS_CACHED_MAX", 2)
    exposition = Exposition(metrics.registry)
    first = exposition.encode("")
    assert exposition.encode("") == first
    assert len(exposition._labels) <= 2
