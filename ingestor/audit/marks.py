"""Marks offsets in bounded memory: window by window, some windows in each pass."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from ingestor.audit.files import Offsets
    from ingestor.records import TopicPartition

    Bits = npt.NDArray[np.bool_]
    Extent = tuple[TopicPartition, int, int]  # offsets of a partition, both ends included

MARKED = 1 << 25  # offsets per pass
WINDOW = 1 << 22  # offsets per window


class Window(NamedTuple):
    """A range of offsets of one partition, both ends included."""

    tp: TopicPartition
    first: int
    last: int

    def bits(self) -> Bits:
        """Return a cleared mark for each offset."""
        return np.zeros(self.last - self.first + 1, dtype=bool)

    def places(self, offsets: Offsets) -> npt.NDArray[np.int64]:
        """Return the indexes of the marks of the offsets that are in the window."""
        inside: npt.NDArray[np.int64] = offsets[(offsets >= self.first) & (offsets <= self.last)] - self.first
        return inside

    def runs(self, bits: Bits) -> tuple[Offsets, Offsets]:
        """Return the first and last offset of each marked range."""
        edges = np.flatnonzero(np.diff(bits, prepend=False, append=False)) + self.first
        return edges[::2], edges[1::2] - 1


def cut(tp: TopicPartition, first: int, last: int) -> Iterator[Window]:
    """Yield the windows of a range in order."""
    for start in range(first, last + 1, WINDOW):
        yield Window(tp, start, min(start + WINDOW - 1, last))


def blocks(extents: Iterable[Extent]) -> Iterator[Window]:
    """Yield windows that cover many ranges, which may overlap."""
    found: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
    for tp, first, last in extents:
        for block in range(first // WINDOW, last // WINDOW + 1):
            low, high = max(first, block * WINDOW), min(last, (block + 1) * WINDOW - 1)
            known = found.get((tp, block), (low, high))
            found[tp, block] = min(known[0], low), max(known[1], high)
    for (tp, _), (low, high) in sorted(found.items()):
        yield Window(tp, low, high)


def passes(some: Iterable[Window], *, sheets: int = 1) -> Iterator[list[Window]]:
    """Group windows into passes with a bounded number of marks, on `sheets` sheets together."""
    gathered: list[Window] = []
    size = 0
    for window in some:
        width = window.last - window.first + 1
        if gathered and size + width > MARKED // sheets:
            yield gathered
            gathered, size = [], 0
        gathered.append(window)
        size += width
    if gathered:
        yield gathered


class Sheet:
    """A mark for each offset of several windows."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self.bits = {window: window.bits() for window in windows}
        self._of: dict[TopicPartition, list[Window]] = {}
        for window in self.bits:
            self._of.setdefault(window.tp, []).append(window)

    def mark(self, tp: TopicPartition, offsets: Offsets) -> None:
        """Mark offsets."""
        for window in self._of.get(tp, ()):
            self.bits[window][window.places(offsets)] = True

    def parts(self, extents: Iterable[Extent]) -> Iterator[Bits]:
        """Yield the marks of ranges of offsets; writing to them marks."""
        for tp, first, last in extents:
            for window in self._of.get(tp, ()):
                part = self.bits[window][max(0, first - window.first) : max(0, last - window.first + 1)]
                if len(part):
                    yield part

    def met(self, extents: Iterable[Extent]) -> list[Window]:
        """Return the windows that overlap ranges of offsets."""
        met: set[Window] = set()
        for tp, first, last in extents:
            met.update(window for window in self._of.get(tp, ()) if window.first <= last and window.last >= first)
        return sorted(met)


@dataclass(slots=True)
class Ranges:
    """Offsets of one partition as rising ranges of 16 bytes each."""

    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))

    def extend(self, firsts: Offsets, lasts: Offsets) -> None:
        """Append ranges above all others."""
        self.firsts.frombytes(firsts.tobytes())
        self.lasts.frombytes(lasts.tobytes())

    def hold(self, offsets: Offsets) -> Bits:
        """Return which of the offsets are in a range."""
        firsts, lasts = np.frombuffer(self.firsts, np.int64), np.frombuffer(self.lasts, np.int64)
        at = np.searchsorted(firsts, offsets, side="right") - 1
        found: Bits = (at >= 0) & (offsets <= lasts[at])
        return found
