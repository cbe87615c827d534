"""A listener that needs no table: for tests of a source alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from ingestor.records import TopicPartition


class FromTheHead:
    """Reads every partition from its head whenever it gets it; `owned` are those that it has."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()

    def on_assigned(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Start at 0, whatever was read before."""
        self.owned.update(tps)
        return dict.fromkeys(tps, 0)

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Have nothing to land."""
        self.owned.difference_update(tps)

    on_lost = on_revoked
