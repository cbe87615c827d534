"""Finds the rows that entries removed and that were not put back.

RESTORE, overwrites and DELETE remove files and may add others. A row is gone if a removed file has it and no live file
does. Entries are judged from the newest to the oldest, so a row that was removed several times counts for the last
removal. The same rule covers rows that an entry added itself: they are live, or a later entry removed them.

Removed files are usually in the store until VACUUM deletes them. For a deleted file, the files that it was rewritten
from show what it held at most, or the commit that landed it shows its number of rows.

Memory: four marks per offset, in passes of 32 MiB; a few numbers per removed file and partition; 16 bytes per range of
rows that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingestor.audit.files import COORDINATES, FileDamagedError, partitions_of, read
from ingestor.audit.marks import Ranges, Sheet, Window, blocks, passes
from ingestor.audit.report import Finding, Findings, count_text, offsets_text
from ingestor.errors import Unavailable

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
    """The rows that one entry may have removed, and those that are gone."""

    removal: Removal
    files: dict[str, list[Extent]] = field(default_factory=dict)
    vanished: set[int] = field(default_factory=set)  # commits that landed removed files that are deleted
    unknown: int = 0  # removed files whose rows are unknown
    ranges: list[Extent] = field(default_factory=list)  # gone but not counted: declared, or of deleted files
    gone: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)  # rows, first, last

    def extents(self) -> Iterator[Extent]:
        """Yield the ranges in which rows may be gone."""
        yield from self.ranges
        for extents in self.files.values():
            yield from extents

    def count(self, window: Window, bits: Bits) -> None:
        """Count the rows of a window that are gone."""
        rows = int(bits.sum())
        if rows:
            first, last = window.first + int(bits.argmax()), window.last - int(bits[::-1].argmax())
            before = self.gone.get(window.tp, (0, first, last))
            self.gone[window.tp] = before[0] + rows, min(before[1], first), max(before[2], last)


class Removals:
    """Compares the entries that removed rows with the live rows."""

    def __init__(self, storage: Storage, rows: RowAudit, facts: LogFacts, findings: Findings) -> None:
        self.absent: dict[TopicPartition, Ranges] = {}  # rows known to be gone, for the comparison with Kafka
        self._storage = storage
        self._rows = rows
        self._facts = facts
        self._findings = findings
        self._extents: dict[str, list[Extent] | None] = {}

    def judge(self, progress: Callable[[str], None]) -> None:
        """Report the rows that are gone, entry by entry."""
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
        """Find the files that show what an entry removed; a file that is live again counts as not removed."""
        taken = _Taken(removal, ranges=list(self._reached(removal.declared)))
        waiting, seen = list(removal.removed), set(removal.removed)
        while waiting:
            path = waiting.pop()
            if path in self._facts.live:
                continue
            extents = self._read_extents(path)
            if extents is not None:
                taken.files[path] = extents
            elif path in self._facts.replaced:  # it had no other rows than the files it replaced
                waiting += [older for older in self._facts.replaced[path] if older not in seen]
                seen.update(waiting)
            elif path in self._facts.added_by:
                taken.vanished.add(self._facts.added_by[path])
            else:
                taken.unknown += 1
        return taken

    def _reached(self, declared: Iterable[Extent]) -> Iterator[Extent]:
        """Yield declared ranges up to the txns, since a declaration may be of any size."""
        for tp, first, last in declared:
            chain = self._facts.chains.get(tp)
            txn = None if chain is None else chain.current
            if txn is not None:
                yield tp, max(first, 0), min(last, txn)

    def _read_extents(self, path: str) -> list[Extent] | None:
        """Return the ranges of a file's rows; None if it is deleted or can't be read."""
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
        """Count the live rows of commits whose files are deleted: the rest of what they landed is gone."""
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
        """Return the ranges that a commit may have landed."""
        ends = {tp: chain.window(version) for tp, chain in self._facts.chains.items()}
        return [(tp, *window) for tp, window in ends.items() if window is not None]

    def _live(self, windows: Sequence[Window]) -> Sheet:
        """Mark the offsets of live rows."""
        sheet = Sheet(windows)
        for tp, offsets in self._rows.coordinates(self._rows.touching(windows)):
            sheet.mark(tp, offsets)
        return sheet

    def _judge(self, each: _Taken, covered: Sheet) -> None:
        """Count the rows that an entry removed in these windows; live rows and later removals are covered."""
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
