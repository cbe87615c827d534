"""Finds the rows that entries took out of the table and nobody put back.

RESTORE, an overwrite, a DELETE remove files and may add others. Gone is what the removed files held and no live file
holds. Entries are judged from the newest to the oldest, so that a row which went and came several times counts for the
one that took it last; that also settles what an entry added itself: it is live, or a later entry took it.

Removed files are mostly still in the store, until VACUUM deletes them. After that the files that were rewritten into
them tell what they held at the most, or the commit that landed them how many rows it had.

Memory: four marks per offset, in passes that take 32 MiB; a few numbers per removed file and partition; 16 bytes per
range of rows that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingestor.audit.files import FileDamagedError, partitions_of, read
from ingestor.audit.marks import Ranges, Sheet, Window, blocks, passes
from ingestor.audit.report import Finding, Findings, count_text, offsets_text
from ingestor.errors import Unavailable
from ingestor.records import COORDINATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ingestor.audit.facts import LogFacts, Removal
    from ingestor.audit.files import Offsets
    from ingestor.audit.marks import Bits, Extent
    from ingestor.audit.rows import RowAudit
    from ingestor.delta.storage import Storage
    from ingestor.records import TopicPartition

_NAMED = 3  # partitions named in a sentence


@dataclass(slots=True)
class _Taken:
    """What one entry may have taken, and what of it is gone."""

    removal: Removal
    files: dict[str, list[Extent]] = field(default_factory=dict)
    vanished: set[int] = field(default_factory=set)  # commits that landed files of it which are deleted
    unknown: int = 0  # files of which nothing tells any more what they held
    ranges: list[Extent] = field(default_factory=list)  # gone without being counted: declared, or not to be told apart
    gone: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)  # rows, first, last

    def extents(self) -> Iterator[Extent]:
        """Yield where anything may be gone."""
        yield from self.ranges
        for extents in self.files.values():
            yield from extents

    def count(self, window: Window, bits: Bits) -> None:
        """Count the rows that are gone in a window."""
        rows = int(bits.sum())
        if rows:
            first, last = window.first + int(bits.argmax()), window.last - int(bits[::-1].argmax())
            before = self.gone.get(window.tp, (0, first, last))
            self.gone[window.tp] = before[0] + rows, min(before[1], first), max(before[2], last)


class Removals:
    """The entries that took rows, against the rows that are live."""

    def __init__(self, storage: Storage, rows: RowAudit, facts: LogFacts, findings: Findings) -> None:
        self.absent: dict[TopicPartition, Ranges] = {}  # what is known to be gone, for whoever compares with Kafka
        self._storage = storage
        self._rows = rows
        self._facts = facts
        self._findings = findings
        self._extents: dict[str, list[Extent] | None] = {}

    def judge(self, progress: Callable[[str], None]) -> None:
        """Report what is gone, entry by entry."""
        taken = []
        for removal in self._facts.removals:
            progress(f"looking for the rows that version {removal.version} removed")
            taken.append(self._take(removal))
        self._count_vanished(taken)
        try:
            self._mark(taken)
        except (FileNotFoundError, FileDamagedError) as error:
            raise Unavailable(f"a removed file was deleted while the audit read it ({error})") from error
        for each in taken:
            self._report(each)

    def _mark(self, taken: Sequence[_Taken]) -> None:
        for windows in passes(blocks(extent for each in taken for extent in each.extents()), sheets=4):
            live, covered = self._live(windows), Sheet(windows)
            for window, bits in live.bits.items():
                covered.bits[window][:] = bits
            for each in reversed(taken):
                self._judge(each, covered)
            for window, bits in covered.bits.items():
                gone = bits & ~live.bits[window]
                if gone.any():
                    self.absent.setdefault(window.tp, Ranges()).extend(*window.runs(gone))

    def _take(self, removal: Removal) -> _Taken:
        """Find out which files tell what an entry removed; those that are live again took nothing."""
        taken = _Taken(removal, ranges=list(self._reached(removal.declared)))
        waiting, seen = list(removal.removed), set(removal.removed)
        while waiting:
            path = waiting.pop()
            if path in self._facts.live:
                continue
            extents = self._read_extents(path)
            if extents is not None:
                taken.files[path] = extents
            elif path in self._facts.replaced:  # it held no other rows than those
                waiting += [older for older in self._facts.replaced[path] if older not in seen]
                seen.update(waiting)
            elif path in self._facts.added_by:
                taken.vanished.add(self._facts.added_by[path])
            else:
                taken.unknown += 1
        return taken

    def _reached(self, declared: Iterable[Extent]) -> Iterator[Extent]:
        """Yield declared ranges as far as the table has ever come: a declaration may be of any size."""
        for tp, first, last in declared:
            chain = self._facts.chains.get(tp)
            txn = None if chain is None else chain.current
            if txn is not None:
                yield tp, max(first, 0), min(last, txn)

    def _read_extents(self, path: str) -> list[Extent] | None:
        """Return where the rows of a file are; None if it is deleted, or can't be read."""
        if path not in self._extents:
            found: dict[TopicPartition, tuple[int, int]] = {}
            try:
                for tp, offsets in self._coordinates(path):
                    first, last = found.get(tp, (int(offsets[0]), int(offsets[0])))
                    found[tp] = min(first, int(offsets.min())), max(last, int(offsets.max()))
            except (FileNotFoundError, FileDamagedError):
                self._extents[path] = None
            else:
                self._extents[path] = [(tp, *ends) for tp, ends in found.items()]
        return self._extents[path]

    def _coordinates(self, path: str) -> Iterator[tuple[TopicPartition, Offsets]]:
        for batch in read(self._storage, path, COORDINATES):
            for tp, _, offsets in partitions_of(batch):
                yield tp, offsets

    def _count_vanished(self, taken: Sequence[_Taken]) -> None:
        """Count the rows of commits whose files are deleted: fewer than they landed, and the rest is gone."""
        extents = {version: self._landed(version) for each in taken for version in each.vanished}
        live = dict.fromkeys(extents, 0)
        for windows in passes(blocks(extent for some in extents.values() for extent in some)):
            sheet = self._live(windows)
            for each in taken:
                for part in sheet.parts(each.removal.declared):
                    part[:] = True
            for version, some in extents.items():
                live[version] += sum(int(bits.sum()) for bits in sheet.parts(some))
        for each in reversed(taken):
            for version in sorted(each.vanished & extents.keys()):
                landed, some = self._facts.landed.get(version), extents.pop(version)
                if landed is None or not some:
                    each.unknown += 1
                elif landed > live[version]:
                    each.ranges += some
                    where = ", ".join(f"{tp} {offsets_text(first, last)}" for tp, first, last in some[:_NAMED])
                    where += f" and of {len(some) - _NAMED:,} more partitions" if len(some) > _NAMED else ""
                    told = f"{landed - live[version]:,} of the rows {where}, whose file is deleted"
                    self._say(each.removal, told)

    def _landed(self, version: int) -> list[Extent]:
        """Return what a commit may have landed."""
        ends = {tp: chain.window(version) for tp, chain in self._facts.chains.items()}
        return [(tp, *window) for tp, window in ends.items() if window is not None]

    def _live(self, windows: Sequence[Window]) -> Sheet:
        """Mark the offsets that the table holds."""
        sheet = Sheet(windows)
        for tp, offsets in self._rows.coordinates(self._rows.touching(windows)):
            sheet.mark(tp, offsets)
        return sheet

    def _judge(self, each: _Taken, covered: Sheet) -> None:
        """Count what an entry took in these windows; what later ones took, or what is live, is covered."""
        windows = covered.met(each.extents())
        took, uncounted = Sheet(windows), Sheet(windows)
        for path in sorted(path for path, extents in each.files.items() if took.met(extents)):
            for tp, offsets in self._coordinates(path):
                took.mark(tp, offsets)
        for part in uncounted.parts(each.ranges):
            part[:] = True
        for window, bits in took.bits.items():
            known = covered.bits[window]
            each.count(window, bits & ~uncounted.bits[window] & ~known)
            known |= bits | uncounted.bits[window]

    def _report(self, each: _Taken) -> None:
        for tp, (rows, first, last) in sorted(each.gone.items()):
            all_of = rows == last - first + 1
            where = f", {offsets_text(first, last)}" if all_of else f" between offsets {first} and {last}"
            told = f"{count_text(rows, 'row')} of {tp}{where}"
            self._say(each.removal, told, tp=tp, offsets=(first, last))
        if each.unknown:
            version, operation = each.removal.version, each.removal.operation
            files = count_text(each.unknown, "file")
            told = f"version {version} ({operation}) removed {files} of which nothing tells any more what they held"
            self._findings.note(told, gone=True)

    def _say(
        self,
        removal: Removal,
        told: str,
        *,
        tp: TopicPartition | None = None,
        offsets: tuple[int, int] | None = None,
    ) -> None:
        sentence = f"version {removal.version} ({removal.operation}) removed {told}"
        if removal.chosen:
            self._findings.note(sentence, gone=True)
        else:
            said = f"{sentence}: nobody put them back"
            self._findings.add(Finding("removed", said, tp=tp, offsets=offsets, version=removal.version))
