"""A process that says of itself what it is told to say."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FakeState:
    """Stands in for `ingestor.observe.status.Status`."""

    def __init__(self) -> None:
        self.is_live = True
        self.reasons: list[str] = []
        self.wrong: dict[str, str | None] = dict.fromkeys(("kafka", "storage", "breaker", "dead_letters"))
        self.shown: Callable[[], Mapping[str, Any]] = lambda: {"routes": {"events": {"lag": 5}}}

    def live(self) -> bool:
        """As told."""
        return self.is_live

    def readiness(self) -> list[str]:
        """As told."""
        return self.reasons

    def status(self) -> Mapping[str, Any]:
        """As told."""
        return self.shown()

    def components(self) -> Mapping[str, str | None]:
        """As told."""
        return self.wrong


def shown(**changes: Any) -> dict[str, Any]:
    """Return what `/api/status` may answer: one route, three partitions, half an hour after the start."""
    now = time.time()
    partition = {"topic": "orders", "position": 100, "record_at": now - 5, "open_transaction_at": None}
    return copy.deepcopy(
        {
            "app_id": "shop",
            "version": "1.2.3",
            "now": now,
            "started_at": now - 1800,
            "live": True,
            "ready": True,
            "reasons": [],
            "kafka_up": True,
            "lag": 30,
            "stale": False,
            "memory": {"used_bytes": 3 << 20, "limit_bytes": 32 << 20},
            "routes": {
                "events": {
                    "table": "s3://lake/events",
                    "topics": ["orders"],
                    "state": "running",
                    "why": None,
                    "failure": None,
                    "behind_seconds": 12.3,
                    "breaker": "closed",
                    "pending": 0,
                    "buffer_bytes": 64 << 20,
                    "flush_bytes": 128 << 20,
                    "partitions": [
                        {**partition, "partition": number, "committed_offset": 90 + number, "lag": 1000 * number}
                        for number in range(3)
                    ],
                }
            },
            "commits": [
                {"at": now, "route": "events", "version": 77, "rows": 4321, "seconds": 0.25, "commit_id": "abc123"}
            ],
            "errors": [],
            "history": {
                "at": [now - 30, now - 20, now - 10],
                "records_per_second": [100.0, 250.0, 200.0],
                "lag": [10, None, 30],
            },
            **changes,
        }
    )
