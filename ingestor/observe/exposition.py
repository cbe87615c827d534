"""Metrics as text for Prometheus: its client's own encoder for most, a quick one for the series of partitions.

With 1,000 partitions there are 3,000 of those, and the client takes 7 us for each: a scrape would hold up the poll
thread for 20 ms (`python -m bench scrape`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from ingestor.records import TopicPartition

    Row = tuple[str, TopicPartition, float]  # route, partition, value

LABELS = ("route", "topic", "partition")
_END = b"# EOF\n"  # of OpenMetrics
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_LABELS_CACHED_MAX = 100_000


class LabelTexts(dict[tuple[str, str, int], str]):
    """How partitions' labels are written; remembered, for they are the same at every scrape."""

    def __missing__(self, key: tuple[str, str, int]) -> str:
        if len(self) >= _LABELS_CACHED_MAX:
            self.clear()
        route, topic = (name.translate(_ESCAPES) for name in key[:2])
        text = self[key] = f'{{route="{route}",topic="{topic}",partition="{key[2]}"}}'
        return text


class PartitionFamily(Metric):
    """A metric with a series per partition. Samples are made only for those who ask for them one by one."""

    def __init__(self, name: str, documentation: str, kind: str, rows: Sequence[Row]) -> None:
        self._rows = rows
        super().__init__(name, documentation, kind)

    @property
    def samples(self) -> list[Sample]:
        """Return the series as the client's own metrics have them."""
        name = self._sample_name
        return [
            Sample(name, dict(zip(LABELS, (route, tp.topic, str(tp.partition)), strict=True)), value)
            for route, tp, value in self._rows
        ]

    @samples.setter
    def samples(self, _samples: Iterable[Sample]) -> None:
        """Take no notice: the base class begins with none."""

    @property
    def _sample_name(self) -> str:
        return f"{self.name}_total" if self.type == "counter" else self.name

    def text(self, labels: LabelTexts, *, openmetrics: bool) -> str:
        """Return the metric's lines."""
        name = self._sample_name
        family = self.name if openmetrics else name
        head = f"# HELP {family} {self.documentation}\n# TYPE {family} {self.type}\n"
        return head + "".join(
            f"{name}{labels[route, tp.topic, tp.partition]} {value}\n" for route, tp, value in self._rows
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """What the client's encoders take for a registry."""

    families: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.families


class Exposition:
    """Encodes one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._labels = LabelTexts()

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return everything in the form that is asked for, and that form's content type."""
        encoder: Callable[[_Part], bytes]
        try:
            encoder, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number: any form will do
            encoder, content_type = choose_encoder("")
        families = list(self._registry.collect())
        quick = [family for family in families if isinstance(family, PartitionFamily)]
        text = encoder(_Part([family for family in families if not isinstance(family, PartitionFamily)]))
        openmetrics = text.endswith(_END)
        lines = "".join(family.text(self._labels, openmetrics=openmetrics) for family in quick).encode()
        return (text[: -len(_END)] + lines + _END if openmetrics else text + lines), content_type
