"""The settings by which the ingestor reads, for whatever reads beside it."""

from __future__ import annotations

from typing import Any

from ingestor.kafka.options import consumer_options

_QUEUE_BYTES = (256 << 20) // 8  # what the ingestor takes of its default `memory`
_FLUSH_SECONDS = 60.0  # the ingestor's default


def options(bootstrap: str, flush_seconds: float = _FLUSH_SECONDS) -> dict[str, Any]:
    """Return a consumer's options."""
    return consumer_options({"bootstrap.servers": bootstrap, "group.id": "bench"}, _QUEUE_BYTES, flush_seconds)
