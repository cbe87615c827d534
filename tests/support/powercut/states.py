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
    telling: bool = False  # whether nothing is there but what was synced, or all but a single name

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
        telling = [disk.lasting(), *disk.without_one_name()]
        for at, tree in enumerate((*telling, *disk.after_a_cut(rng))):
            key = hash(tuple(tree.items()))
            if key not in found or found[key].acknowledged < acknowledged:
                found[key] = State(tree, acknowledged, number, what, telling=at < len(telling))
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
    """Return so many of them, the telling ones first."""
    rng = random.Random(seed)
    shuffled = rng.sample(found, len(found))
    return sorted(shuffled, key=lambda state: not state.telling)[:count]
