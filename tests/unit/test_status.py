"""What a process tells of the transactions that hold it up."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ingestor import status as module
from ingestor.breaker import BreakerState
from ingestor.broker import Watermarks
from ingestor.metrics import Metrics
from ingestor.records import TopicPartition
from ingestor.route import RouteView
from ingestor.status import Status
from tests.support.ingestors import eventually

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Held:
    """Kafka with an open transaction at offset 5 of the first partition."""

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        marks = {A0: Watermarks(0, 9, 5), A1: Watermarks(0, 9, 9)}
        return {tp: marks[tp] for tp in tps}


class Loop:
    """A pipeline that has read both partitions up to offset 5."""

    joined = True

    def view(self) -> dict[str, RouteView]:
        positions = MappingProxyType({A0: 5, A1: 5})
        return {"r": RouteView(BreakerState.CLOSED, paused=False, pending=0, positions=positions, draft_bytes=0)}


def test_a_transaction_that_hangs_for_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By partition and offset; the lag counts up to it, for nothing behind it can be read."""
    monkeypatch.setattr(module, "_LAG_SECONDS", 0.01)
    monkeypatch.setattr(module, "_STUCK_TRANSACTION_SECONDS", 0.05)
    told: list[str] = []
    cluster: Any = Held()
    loop: Any = Loop()
    status = Status(Metrics(), cluster, stuck_seconds=60, on_stuck=told.append)
    status.tick(loop)
    eventually(lambda: told)
    assert {line.partition(" since")[0] for line in told} == {"a:0: a transaction is open at offset 5"}
    held, free = status.status()["routes"]["r"]["partitions"]
    assert (held["lag"], held["open_transaction_at"]) == (0, 5)
    assert (free["lag"], free["open_transaction_at"]) == (4, None)
