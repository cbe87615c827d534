"""Audits the rows: which offsets each file has, and which offsets are there twice.

The coordinates of every file are streamed once, and one span (first, last) per file and partition is kept. Two rows
can share an offset only where spans overlap, which happens only after OPTIMIZE has mixed files. Only there every
offset is marked, in passes of at most `marks.MARKED` offsets.

Memory: two bytes per offset of a pass (64 MiB), 25 bytes per span, a log record per live file, and one batch of rows.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ingestor.audit.files import COORDINATES, FileDamagedError, LiveFile, partitions_of, read
from ingestor.audit.marks import Window, cut, passes
from ingestor.audit.report import Finding, Findings, offsets_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ingestor.audit.facts import LogFacts
    from ingestor.audit.files import Offsets
    from ingestor.delta.storage import Storage
    from ingestor.records import TopicPartition

_NAMED = 3  # files named in a sentence


@dataclass(slots=True)
class Spans:
    """The spans of one partition's rows: parallel arrays, one item per file."""

    files: array[int] = field(default_factory=lambda: array("q"))
    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))
    jumbled: array[int] = field(default_factory=lambda: array("b"))

    def append(self, file: int, span: _Span) -> None:
        """Add the span of a file."""
        self.files.append(file)
        self.firsts.append(span.first)
        self.lasts.append(span.last)
        self.jumbled.append(span.jumbled)

    def ends(self) -> tuple[Offsets, Offsets]:
        """Return the first and last offset of each file."""
        return np.array(self.firsts, np.int64), np.array(self.lasts, np.int64)

    def touching(self, first: int, last: int) -> set[int]:
        """Return the files that may hold rows of a range."""
        firsts, lasts = self.ends()
        hits = np.flatnonzero((firsts <= last) & (lasts >= first))
        return {self.files[at] for at in hits.tolist()}


@dataclass(slots=True)
class _Span:
    """The offsets of one partition's rows in one file."""

    first: int
    last: int
    latest: int  # the offset before the next row
    jumbled: bool = False  # the offsets don't rise from row to row

    def extend(self, offsets: Offsets) -> None:
        falls = offsets[0] <= self.latest or (np.diff(offsets) <= 0).any()
        self.jumbled |= bool(falls)
        self.first = min(self.first, int(offsets.min()))
        self.last = max(self.last, int(offsets.max()))
        self.latest = int(offsets[-1])


class RowAudit:
    """The rows of the audited version."""

    def __init__(self, storage: Storage, files: Sequence[LiveFile], facts: LogFacts, findings: Findings) -> None:
        self.files = files
        self.spans: dict[TopicPartition, Spans] = {}
        self.rows = 0
        self._storage = storage
        self._facts = facts
        self._findings = findings
        self._unreadable: set[int] = set()
        self._newest: dict[TopicPartition, int] = {}  # the newest entry that landed rows of a partition

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a file's columns; a file that can't be read is a finding, and is skipped from then on."""
        file = self.files[number]
        if number in self._unreadable:
            return
        try:
            yield from read(self._storage, file.path, columns)
        except FileNotFoundError:
            self._unreadable.add(number)
            sentence = f"{file.path} is live, but it is not there"
            self._findings.add(Finding("file_missing", sentence, file=file.path))
        except FileDamagedError as error:
            self._unreadable.add(number)
            sentence = f"{file.path} can't be read: {error}"
            self._findings.add(Finding("file_damaged", sentence, file=file.path))

    def scan(self, progress: Callable[[str], None]) -> None:
        """Read the coordinates of every file once, and compare them with the log."""
        for number, file in enumerate(self.files):
            spans: dict[TopicPartition, _Span] = {}
            rows = 0
            for batch in self.batches(number, COORDINATES):
                rows += batch.num_rows
                for tp, _, offsets in partitions_of(batch):
                    first = int(offsets[0])
                    spans.setdefault(tp, _Span(first, first, first - 1)).extend(offsets)
            if number in self._unreadable:
                continue
            self.rows += rows
            self._check_file(file, rows)
            self._attribute(file, spans)
            for tp, span in spans.items():
                self.spans.setdefault(tp, Spans()).append(number, span)
            progress(f"read {number + 1:,} of {len(self.files):,} files, {self.rows:,} rows")

    def _check_file(self, file: LiveFile, rows: int) -> None:
        with self._storage.open_input(file.path) as source:
            size = source.size()
        if size != file.size:
            sentence = f"{file.path} has {size:,} bytes, the log says {file.size:,}"
            self._findings.add(Finding("file_size", sentence, file=file.path))
        if file.rows is not None and rows != file.rows:
            sentence = f"{file.path} has {rows:,} rows, the log says {file.rows:,}"
            self._findings.add(Finding("file_rows", sentence, file=file.path))

    def _attribute(self, file: LiveFile, spans: Mapping[TopicPartition, _Span]) -> None:
        """Compare a file with the commit that landed it, if that is still in the log."""
        version = self._facts.added_by.get(file.path)
        if version is None:
            return
        if version in self._facts.awaited:
            self._facts.awaited[version] -= 1
        for tp, span in spans.items():
            chain = self._facts.chains.get(tp)
            self._newest[tp] = max(version, self._newest.get(tp, -1))
            if chain is None:
                continue  # `check_txns` reports it
            chain.saw(version, span.last)
            window = chain.window(version)
            if chain.follows(version) and tp in self._facts.elsewhere.get(version, ()):
                continue  # landed under another app_id, from which `offsets --set` took over
            if window is None:
                what = "moved no txn of it"
                self._blame(file, tp, span, version, kind="outside_commit", what=what)
            elif span.first < window[0] or span.last > window[1]:
                what = f"landed {offsets_text(*window)} only"
                self._blame(file, tp, span, version, kind="outside_commit", what=what)
            if span.jumbled:
                self._blame(file, tp, span, version, kind="order", what="did not land them in order")

    def _blame(self, file: LiveFile, tp: TopicPartition, span: _Span, version: int, *, kind: str, what: str) -> None:
        offsets = (span.first, span.last)
        sentence = f"{file.path} holds {tp} {offsets_text(*offsets)}, but version {version} {what}"
        finding = Finding(kind, sentence, tp=tp, offsets=offsets, version=version, file=file.path)
        self._findings.add(finding)

    def check_txns(self, txns: Mapping[TopicPartition, int], *, foreign: Container[TopicPartition]) -> None:
        """Check that each partition with rows has a txn, and no row above it."""
        for tp, spans in sorted(self.spans.items()):
            first, last = min(spans.firsts), max(spans.lasts)
            txn = txns.get(tp, self._facts.handed_over.get(tp))
            if txn is None and tp in foreign:
                reason = "was ingested under another app_id: only duplicates are looked for"
                self._findings.note(f"{tp} {reason}")
            elif txn is None and self._facts.before(tp, self._newest.get(tp, -1)):
                self._findings.note(f"{tp} has rows from before a person let another topic have its txn")
            elif txn is None:
                sentence = f"{tp} has rows ({offsets_text(first, last)}), but no txn"
                self._findings.add(Finding("no_txn", sentence, tp=tp, offsets=(first, last)))
            elif last > txn:
                self._beyond(tp, txn, last)

    def _beyond(self, tp: TopicPartition, txn: int, last: int) -> None:
        chain = self._facts.chains.get(tp)
        sentence = f"{tp} has rows up to offset {last}, its txn says {txn}"
        if chain is not None and last <= chain.reach:
            self._findings.note(f"{sentence}: a person set it back")
        else:
            beyond = (txn + 1, last)
            self._findings.add(Finding("beyond_txn", sentence, tp=tp, offsets=beyond))

    def find_duplicates(self, progress: Callable[[str], None]) -> None:
        """Mark every offset where spans overlap, and report those marked twice."""
        for windows in passes(_overlaps(self.spans)):
            marks: dict[TopicPartition, list[_Marks]] = {}
            for window in windows:
                marks.setdefault(window.tp, []).append(_Marks(window))
            files = self.touching(windows)
            progress(f"looking for duplicates in {len(files):,} files whose offsets overlap")
            for tp, offsets in self.coordinates(files):
                for each in marks.get(tp, ()):
                    each.mark(offsets)
            for each in (each for some in marks.values() for each in some):
                self._report_twice(each)

    def touching(self, windows: Sequence[Window]) -> list[int]:
        """Return the files that may hold rows of windows."""
        known = (window for window in windows if window.tp in self.spans)
        return sorted({file for w in known for file in self.spans[w.tp].touching(w.first, w.last)})

    def coordinates(self, files: Sequence[int]) -> Iterator[tuple[TopicPartition, Offsets]]:
        """Yield the offsets of each partition in files, batch by batch."""
        for number in files:
            for batch in self.batches(number, COORDINATES):
                for tp, _, offsets in partitions_of(batch):
                    yield tp, offsets

    def _report_twice(self, marks: _Marks) -> None:
        tp = marks.window.tp
        for first, last in marks.repeated():
            names = [self.files[number].path for number in sorted(self.spans[tp].touching(first, last))]
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            where = f"in {', '.join(names[:_NAMED])}{more}"
            sentence = f"{tp} {offsets_text(first, last)} more than once in the table: {where}"
            self._findings.add(Finding("duplicate", sentence, tp=tp, offsets=(first, last)))


class _Marks:
    """Which offsets of a window were seen once, and which more often."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._once, self._twice = window.bits(), window.bits()

    def mark(self, offsets: Offsets) -> None:
        places = np.sort(self.window.places(offsets))
        self._twice[places[self._once[places]]] = True
        self._twice[places[1:][np.diff(places) == 0]] = True
        self._once[places] = True

    def repeated(self) -> Iterator[tuple[int, int]]:
        firsts, lasts = self.window.runs(self._twice)
        return zip(firsts.tolist(), lasts.tolist(), strict=True)


def _overlaps(spans: Mapping[TopicPartition, Spans]) -> Iterator[Window]:
    """Yield the ranges where two files, or one whose offsets don't rise, may have an offset twice."""
    for tp, each in sorted(spans.items()):
        firsts, lasts = each.ends()
        order = np.argsort(firsts, kind="stable")
        reach = np.maximum.accumulate(lasts[order])
        apart = np.flatnonzero(firsts[order][1:] > reach[:-1]) + 1
        for cluster in np.split(order, apart):
            if len(cluster) > 1 or each.jumbled[cluster[0]]:
                for window in cut(tp, int(firsts[cluster].min()), int(lasts[cluster].max())):
                    if ((firsts[cluster] <= window.last) & (lasts[cluster] >= window.first)).any():
                        yield window
