"""Audits the table against Kafka: every committed record still retained is there, and nothing else.

Both sides are read once. Each record is reduced to a 128-bit digest of its offset and content. Per window of `_WINDOW`
offsets the table's digests are added and Kafka's subtracted. If a window's sum is zero, both sides have the same
records, in any order. Only windows that differ are read again, and compared record by record.

Memory: a few numbers per window with rows, 200 bytes per record of one window (25 MiB for both sides), and one batch
of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ingestor.audit.content import Content, Message, RecordReader, Rows
from ingestor.audit.facts import Chain
from ingestor.audit.files import partitions_of
from ingestor.audit.report import LISTED, Finding, Findings, offsets_text
from ingestor.audit.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ingestor.audit.facts import LogFacts
    from ingestor.audit.files import Offsets
    from ingestor.audit.marks import Ranges
    from ingestor.audit.rows import RowAudit
    from ingestor.records import RawSchema, TopicPartition

    Range = tuple[int, int]  # both ends included

_WINDOW = 1 << 16
_EXAMINED = 64  # windows of one partition that are compared record by record
_LANE_MASK = (1 << 64) - 1


class KafkaAudit:
    """The table's rows against Kafka's records."""

    def __init__(
        self,
        kafka: RecordReader,
        rows: RowAudit,
        schema: RawSchema,
        facts: LogFacts,
        findings: Findings,
        *,
        absent: Mapping[TopicPartition, Ranges],
    ) -> None:
        self._kafka = kafka
        self._absent = absent
        self._rows = rows
        self._content = Content(schema.extras)
        self._facts = facts
        self._findings = findings
        self._ranges: dict[TopicPartition, list[Range]] = {}
        self._balance: dict[tuple[TopicPartition, int], list[int]] = {}  # count, two lanes

    def run(
        self,
        txns: Mapping[TopicPartition, int],
        *,
        from_start: bool,
        progress: Callable[[str], None],
    ) -> int:
        """Compare every partition up to its txn; return how many records Kafka had for it."""
        others = self._recreated()
        for tp, txn in sorted(txns.items()):
            if tp not in others:
                self._plan(tp, txn, from_start=from_start)
        self._add_table(progress)
        compared = 0
        for ranges in self._rounds():
            for tp, messages in self._kafka.read_all(ranges):
                rows = self._wanted(tp, messages, ranges[tp])
                self._add(tp, rows, sign=-1)
                compared += len(rows.offsets)
                progress(f"compared {compared:,} records of Kafka")
        self._examine(progress)
        return compared

    def _rounds(self) -> Iterator[dict[TopicPartition, Range]]:
        """Yield the first range of each partition, then the second ones, and so on."""
        for nth in range(max(map(len, self._ranges.values()), default=0)):
            yield {tp: ranges[nth] for tp, ranges in self._ranges.items() if nth < len(ranges)}

    def _wanted(self, tp: TopicPartition, messages: Sequence[Message], within: Range) -> Rows:
        """Return Kafka's records of a range, without those that are known to be removed from the table."""
        rows = self._content.of_kafka(messages).within(*within)
        absent = self._absent.get(tp)
        return rows if absent is None else rows.where(~absent.hold(rows.offsets))

    def _recreated(self) -> set[TopicPartition]:
        """Return the partitions whose rows came from an earlier topic of the same name: they can't be compared.

        That is no finding if another partition's rows are of today's topic: its commits declare what was lost
        (`on_data_loss: skip`).
        """
        now = {topic: self._kafka.topic_id(topic) for topic in {tp.topic for tp in self._facts.topic_ids}}
        others = {tp for tp, was in self._facts.topic_ids.items() if now[tp.topic] not in (None, was)}
        declared = {tp.topic for tp in self._facts.topic_ids.keys() - others}
        for tp in sorted(others):
            if tp.topic in declared:
                self._findings.note(f"{tp} came from an earlier topic of this name: not compared")
        for topic in sorted({tp.topic for tp in others} - declared):
            was = ", ".join(sorted({self._facts.topic_ids[tp] for tp in others if tp.topic == topic}))
            sentence = f"topic {topic} was recreated: its id is {now[topic]}, the table's is {was}"
            self._findings.add(Finding("recreated", sentence))
        return others

    def _plan(self, tp: TopicPartition, txn: int, *, from_start: bool) -> None:
        marks = self._kafka.watermarks(tp)
        if marks is None:
            self._findings.note(f"{tp} is not in Kafka: nothing to compare it with")
            return
        chain = self._facts.chains.get(tp, Chain())
        spans = self._rows.spans.get(tp)
        begins = chain.claimed_from
        if begins is None:
            whole = spans is None or (from_start and chain.begins_here)
            begins = 0 if whole else min(spans.firsts) if spans is not None else 0
        ranges = list(without((max(marks[0], begins), txn), chain.gaps))
        if ranges:
            self._ranges[tp] = ranges

    def _add_table(self, progress: Callable[[str], None]) -> None:
        wanted = {file for tp, ranges in self._ranges.items() for file in self._files(tp, ranges)}
        for done, number in enumerate(sorted(wanted), start=1):
            for tp, rows in self._table_rows(number, self._ranges):
                self._add(tp, rows, sign=1)
            progress(f"read the payloads of {done:,} of {len(wanted):,} files")

    def _files(self, tp: TopicPartition, ranges: Iterable[Range]) -> set[int]:
        spans = self._rows.spans.get(tp)
        if spans is None:
            return set()
        return {file for first, last in ranges for file in spans.touching(first, last)}

    def _table_rows(
        self, number: int, wanted: Mapping[TopicPartition, Sequence[Range]]
    ) -> Iterator[tuple[TopicPartition, Rows]]:
        """Yield a file's rows in the wanted ranges."""
        for batch in self._rows.batches(number, self._content.columns):
            for tp, places, offsets in partitions_of(batch):
                inside = _inside(offsets, wanted.get(tp, ()))
                if inside.any():
                    chosen = batch.take(pa.array(places[inside]))
                    yield tp, self._content.of_table(chosen, offsets[inside])

    def _kafka_rows(self, tp: TopicPartition, ranges: Iterable[Range]) -> Iterator[Rows]:
        for first, last in ranges:
            for messages in self._kafka.read(tp, first, last):
                rows = self._wanted(tp, messages, (first, last))
                if len(rows.offsets):
                    yield rows

    def _add(self, tp: TopicPartition, rows: Rows, *, sign: int) -> None:
        windows, places = np.unique(rows.offsets // _WINDOW, return_inverse=True)
        sums = np.zeros((len(windows), 2), np.uint64)
        np.add.at(sums, places, rows.digests())
        counts = np.bincount(places).tolist()
        for window, count, lanes in zip(windows.tolist(), counts, sums.tolist(), strict=True):
            balance = self._balance.setdefault((tp, window), [0, 0, 0])
            balance[0] += sign * count
            balance[1:] = [(old + sign * new) & _LANE_MASK for old, new in zip(balance[1:], lanes, strict=True)]

    def _examine(self, progress: Callable[[str], None]) -> None:
        """Compare the windows that differ record by record, until there are enough findings."""
        differing: dict[TopicPartition, list[int]] = {}
        for (tp, window), balance in sorted(self._balance.items()):
            if any(balance):
                differing.setdefault(tp, []).append(window)
        for tp, windows in differing.items():
            compacted = self._kafka.compacted(tp.topic)
            runs = Runs(tp, self._findings, compacted=compacted)
            limit = len(windows) if compacted else _EXAMINED
            looked_at = 0
            while looked_at < min(limit, len(windows)) and self._findings.total < LISTED:
                window = windows[looked_at]
                progress(f"{tp}: comparing {offsets_text(*_bounds(window))} record by record")
                self._compare(tp, window, runs)
                looked_at += 1
            runs.close()
            if looked_at < len(windows):
                self._rest(tp, windows[looked_at:])

    def _rest(self, tp: TopicPartition, windows: Sequence[int]) -> None:
        offsets = _bounds(windows[0])[0], _bounds(windows[-1])[1]
        where = f"{tp} {offsets_text(*offsets)}"
        sentence = f"{where} differ from Kafka in {len(windows):,} windows not looked at closely"
        self._findings.add(Finding("differs", sentence, tp=tp, offsets=offsets))

    def _compare(self, tp: TopicPartition, window: int, runs: Runs) -> None:
        ranges = self._still_comparable(tp, window)
        theirs: dict[int, bytes] = {}
        for rows in self._kafka_rows(tp, ranges):
            theirs.update(rows.prints())
        ours: dict[int, bytes] = {}
        for number in sorted(self._files(tp, ranges)):
            for _, rows in self._table_rows(number, {tp: ranges}):
                for offset, found in rows.prints():  # of two rows with one offset keep the one that differs
                    if ours.get(offset, theirs.get(offset)) == theirs.get(offset):
                        ours[offset] = found
        uncommitted = self._uncommitted(tp, sorted(ours.keys() - theirs.keys()))
        runs.begin(window)
        for offset in sorted(ours.keys() | theirs.keys()):
            if offset not in ours:
                passed = any(first <= offset <= last for first, last in self._facts.chains.get(tp, Chain()).passed)
                runs.feed(offset, "passed_over" if passed else "missing")
            elif offset not in theirs:
                runs.feed(offset, "aborted" if offset in uncommitted else "unknown")
            else:
                runs.feed(offset, self._content.difference(ours[offset], theirs[offset]))

    def _still_comparable(self, tp: TopicPartition, window: int) -> list[Range]:
        """Return a window's part of the ranges that retention has not removed meanwhile."""
        low, _ = self._kafka.watermarks(tp) or (0, 0)
        start, end = _bounds(window)
        cut = ((max(first, start, low), min(last, end)) for first, last in self._ranges[tp])
        return [(first, last) for first, last in cut if first <= last]

    def _uncommitted(self, tp: TopicPartition, offsets: Sequence[int]) -> set[int | None]:
        """Return the offsets between the first and last of these that Kafka has, committed or not."""
        if not offsets:
            return set()
        found: set[int | None] = set()
        for messages in self._kafka.read(tp, offsets[0], offsets[-1], aborted=True):
            found.update(message.offset() for message in messages)
        return found


def without(whole: Range, holes: Iterable[Range]) -> Iterator[Range]:
    """Yield the parts of a range outside the holes."""
    first, last = whole
    for start, end in sorted(holes):
        if end < start:
            continue
        if start > first and first <= last:
            yield first, min(start - 1, last)
        first = max(first, end + 1)
    if first <= last:
        yield first, last


def _inside(offsets: Offsets, ranges: Iterable[Range]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(offsets), dtype=bool)
    for first, last in ranges:
        inside |= (offsets >= first) & (offsets <= last)
    return inside


def _bounds(window: int) -> Range:
    return window * _WINDOW, (window + 1) * _WINDOW - 1
