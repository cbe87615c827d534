"""What an audit says: findings that make a table wrong, notes that explain it, and a verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingestor.records import TopicPartition

LISTED = 100  # a table that is wrong everywhere needs no longer list than this


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with the table: its kind, where it is, and a sentence for people."""

    kind: str
    sentence: str
    tp: TopicPartition | None = None
    offsets: tuple[int, int] | None = None  # first and last, both included
    version: int | None = None
    file: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as an object for JSON, without what it has nothing to say about."""
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
        self.gone = False  # a note tells of records that the table has not got
        self._notes: list[str] = []
        self._notes_total = 0

    def add(self, finding: Finding) -> None:
        """Take in a finding."""
        self.total += 1
        if len(self.listed) < LISTED:
            self.listed.append(finding)

    def note(self, sentence: str, *, gone: bool = False) -> None:
        """Take in something worth knowing that is no fault of the table; `gone`: records are not in it."""
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
    compared: int | None  # records of Kafka, None if Kafka was not asked
    complete: bool  # no note tells of records that are not in it
    findings: tuple[Finding, ...]
    findings_total: int
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether the table is what it should be."""
        return self.findings_total == 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as an object for JSON."""
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
                _count(self.rows, "row"),
                _count(self.partitions, "partition"),
                _count(self.files, "file"),
                _count(self.commits, "commit"),
            ),
        )
        if self.ok:
            also = "" if self.compared is None else f", {self.compared:,} equal to Kafka's"
            said = "every offset once" if self.complete else "no offset twice, none missing but what the notes name"
            return f"OK — {counts}: {said}{also}"
        return f"{_count(self.findings_total, 'finding')} — {counts}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def offsets_text(first: int, last: int) -> str:
    """Spell a range of offsets, both ends included."""
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
