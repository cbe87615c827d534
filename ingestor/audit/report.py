"""An audit's result: findings (the table is wrong), notes (it is explained), and a verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingestor.records import TopicPartition

LISTED = 100  # findings that are listed; the others are only counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of the table: its kind, its place, and a sentence for people."""

    kind: str
    sentence: str
    tp: TopicPartition | None = None
    offsets: tuple[int, int] | None = None  # first and last, both included
    version: int | None = None
    file: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding for JSON, without empty fields."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.tp is not None:
            del fields["tp"]
            fields |= {"topic": self.tp.topic, "partition": self.tp.partition}
        return fields


class Findings:
    """Collects findings and notes; counts them all, keeps the first `LISTED` of each."""

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.total = 0
        self.gone = False  # a note says that records are missing
        self._notes: list[str] = []
        self._notes_total = 0

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.total += 1
        if len(self.listed) < LISTED:
            self.listed.append(finding)

    def note(self, sentence: str, *, gone: bool = False) -> None:
        """Add something worth knowing that is no finding; `gone`: it says that records are missing."""
        self.gone |= gone
        self._notes_total += 1
        if len(self._notes) < LISTED:
            self._notes.append(sentence)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes, the last one saying how many are not listed."""
        more = self._notes_total - len(self._notes)
        return (*self._notes, f"and {more:,} more notes") if more else tuple(self._notes)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an audit of one table."""

    table: str
    version: int
    rows: int
    files: int
    commits: int
    partitions: int
    compared: int | None  # records of Kafka, None without `--against-kafka`
    complete: bool  # no note says that records are missing
    findings: tuple[Finding, ...]
    findings_total: int
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether there are no findings."""
        return self.findings_total == 0

    def to_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        findings = [finding.to_json() for finding in self.findings]
        return {"ok": self.ok, **fields, "findings": findings, "notes": list(self.notes)}

    def lines(self) -> Iterator[str]:
        """Yield the report for people; the last line is the verdict."""
        yield from (f"note: {note}" for note in self.notes)
        yield from (f"finding ({finding.kind}): {finding.sentence}" for finding in self.findings)
        if self.findings_total > len(self.findings):
            yield f"and {self.findings_total - len(self.findings):,} more"
        yield f"audit: {self._verdict()}"

    def _verdict(self) -> str:
        counts = ", ".join(
            (
                count_text(self.rows, "row"),
                count_text(self.partitions, "partition"),
                count_text(self.files, "file"),
                count_text(self.commits, "commit"),
            ),
        )
        if self.ok:
            also = "" if self.compared is None else f", {self.compared:,} equal to Kafka's"
            said = "every offset once" if self.complete else "no offset twice, none missing but what the notes name"
            return f"OK — {counts}: {said}{also}"
        return f"{count_text(self.findings_total, 'finding')} — {counts}"


def count_text(number: int, word: str) -> str:
    """Return a count with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def offsets_text(first: int, last: int) -> str:
    """Return a range of offsets as text, both ends included."""
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
