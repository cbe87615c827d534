"""Turns the verdicts of the comparison record by record into findings, one per run of equal verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor.audit.report import Finding, Findings, offsets_text

if TYPE_CHECKING:
    from ingestor.records import TopicPartition

_SENTENCES = {
    "missing": "committed in Kafka, not in the table",
    "passed_over": "committed in Kafka, not in the table: `offsets --set` passed over it",
    "aborted": "in the table, though not committed in Kafka",
    "unknown": "in the table, not in Kafka",
}


class Runs:
    """Combines consecutive records with the same verdict into one finding."""

    def __init__(self, tp: TopicPartition, findings: Findings, *, compacted: bool) -> None:
        self._tp = tp
        self._findings = findings
        self._compacted = compacted
        self._vanished = 0
        self._window: int | None = None
        self._verdict = ""
        self._first = self._last = self._count = 0

    def begin(self, window: int) -> None:
        """Start a window; a run continues only from the window just before."""
        if self._window != window - 1:
            self._flush()
        self._window = window

    def feed(self, offset: int, verdict: str) -> None:
        """Add the verdict on the next record; "" means equal."""
        if verdict == "unknown" and self._compacted:
            self._vanished += 1
            return
        if verdict != self._verdict:
            self._flush()
            self._verdict, self._first = verdict, offset
        self._last = offset
        self._count += 1

    def close(self) -> None:
        """Report the last run."""
        self._flush()
        if self._vanished:
            count = f"{self._vanished:,}"
            self._findings.note(f"{self._tp}: Kafka compacted {count} records that the table has")

    def _flush(self) -> None:
        if self._verdict:
            kind = self._verdict if self._verdict in _SENTENCES else "changed"
            said = _SENTENCES.get(self._verdict, f"not equal to Kafka's in {self._verdict}")
            records = "1 record" if self._count == 1 else f"{self._count:,} records"
            offsets = (self._first, self._last)
            sentence = f"{self._tp} {offsets_text(*offsets)}, {records}: {said}"
            self._findings.add(Finding(kind, sentence, tp=self._tp, offsets=offsets))
        self._verdict, self._count = "", 0
