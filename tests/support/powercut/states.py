"""What a disk may hold after a power cut at any moment of what was recorded, and what had been acknowledged by then."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.powercut.disk import Disk
from tests.support.powercut.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.support.powercut.disk import Tree
    from tests.support.powercut.operations import Operation


@dataclass(frozen=True, slots=True)
class State:
    """One disk: what stands there, and the newest version of the table that was acknowledged (-1: none)."""

    tree: Tree
    acknowledged: int
    cut_after: int  # the number of the operation, from 1
    operation: str
    least: bool = False  # whether nothing is there but what was synced

    def __str__(self) -> str:
        return f"cut after operation {self.cut_after} ({self.operation}), version {self.acknowledged} acknowledged"


def states(operations: Sequence[Operation], seed: int) -> list[State]:
    """Return every disk that a cut at any moment may leave, as far as `after_a_cut` goes; each one once.

    Of equal disks that is kept before whose cut the most had been acknowledged.
    """
    rng = random.Random(seed)
    found: dict[int, State] = {}
    disk = Disk()
    for number, (operation, acknowledged) in enumerate(zip(operations, _acknowledged(operations), strict=True), 1):
        disk.apply(operation)
        what = f"{operation.kind.name} {operation.path}"
        least = disk.lasting()
        for tree in (least, *disk.after_a_cut(rng)):
            key = hash(tuple(tree.items()))
            if key not in found or found[key].acknowledged < acknowledged:
                found[key] = State(tree, acknowledged, number, what, least=tree is least)
    return list(found.values())


def _acknowledged(operations: Iterable[Operation]) -> Iterator[int]:
    """Yield for each operation the newest version that the process had told to be committed by then."""
    rest, version = b"", -1
    for operation in operations:
        if operation.kind is Kind.NOTE:
            *lines, rest = (rest + operation.content).split(b"\n")
            for line in lines:
                event = json.loads(line) if line.startswith(b"{") else {}
                if event.get("event") == "committed":
                    version = max(version, event["version"])
        yield version


def sample(found: Sequence[State], count: int, seed: int) -> list[State]:
    """Return so many of them: those with nothing but what was synced, and any of the others."""
    least = [state for state in found if state.least]
    others = [state for state in found if not state.least]
    left = max(0, count - len(least))
    return [*least, *(random.Random(seed).sample(others, left) if left < len(others) else others)]
