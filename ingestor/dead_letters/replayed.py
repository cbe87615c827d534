"""Which letters were replayed, kept in txns of the quarantine table: neither RESTORE nor log clean-up removes them.

There is one txn per run of offsets: its app id names topic, partition and first offset, its version is the last offset.
Adjacent runs are joined by raising one txn; the txns that it covers stay and do no harm.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.dead_letters.letters import by_partition
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ingestor.records import Coordinate


_LAST = 2**63  # above every offset


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replayed offsets of each partition, as sorted, separate runs (first and last)."""

    prefix: str
    runs: Mapping[TopicPartition, Sequence[tuple[int, int]]]

    @classmethod
    def of(cls, app_id: str, txns: Mapping[str, int]) -> Replayed:
        """Return the replayed offsets in a table's txns."""
        prefix = f"{app_id}/dlq-replayed/"
        runs: dict[TopicPartition, list[tuple[int, int]]] = {}
        for name, last in txns.items():
            if name.startswith(prefix):
                topic, partition, first = name.removeprefix(prefix).rsplit("/", 2)
                runs.setdefault(TopicPartition(topic, int(partition)), []).append((int(first), last))
        return cls(prefix, {tp: _joined(found) for tp, found in runs.items()})

    def without(self, origins: Sequence[Coordinate]) -> list[Coordinate]:
        """Return those letters that were not replayed, in the same order."""
        return [origin for origin in origins if not self._has(origin)]

    def _has(self, origin: Coordinate) -> bool:
        runs = self.runs.get(origin.tp, ())
        place = bisect.bisect_right(runs, (origin.offset, _LAST)) - 1
        return place >= 0 and origin.offset <= runs[place][1]

    def txns_with(self, origins: Collection[Coordinate]) -> dict[str, int]:
        """Return the txns to commit so that these letters count as replayed."""
        moved: dict[str, int] = {}
        for tp, offsets in by_partition(list(origins)).items():
            known = self.runs.get(tp, ())
            runs = _joined([*known, *((offset, offset) for offset in offsets)])
            place = f"{self.prefix}{tp.topic}/{tp.partition}"
            moved |= {f"{place}/{first}": last for first, last in set(runs).difference(known)}
        return moved


def _joined(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted runs, adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
