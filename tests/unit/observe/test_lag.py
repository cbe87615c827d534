"""What the thread that asks Kafka for the lag tells of the transactions that hold it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingestor.kafka.broker import Watermarks
from ingestor.observe import lag as module
from ingestor.observe.lag import Lag
from ingestor.records import TopicPartition
from tests.support.process.ingestors import eventually

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Held:
    """Kafka with an open transaction at offset 5 of the first partition."""

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        marks = {A0: Watermarks(0, 9, 5), A1: Watermarks(0, 9, 9)}
        return {tp: marks[tp] for tp in tps}


def test_a_transaction_that_hangs_for_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By partition and offset; the lag counts up to it, for nothing behind it can be read."""
    monkeypatch.setattr(module, "SAMPLE_SECONDS", 0.01)
    monkeypatch.setattr(module, "_STUCK_TRANSACTION_SECONDS", 0.05)
    told: list[str] = []
    cluster: Any = Held()
    lag = Lag(cluster, partitions=lambda: [A0, A1], on_stuck=told.append)
    lag.start()
    eventually(lambda: told)
    assert {line.partition(" since")[0] for line in told} == {"a:0: a transaction is open at offset 5"}
    assert lag.ends.stable == {A0: 5, A1: 9}
    assert lag.ends.held == {A0: 5}
    lag.end()
    eventually(lambda: not lag.asks)
