"""What an audit keeps of the Delta log: each partition's txns, and the entries that added and removed rows."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingestor.audit.report import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.audit.files import LiveFile
    from ingestor.audit.marks import Extent
    from ingestor.audit.report import Findings
    from ingestor.records import TopicPartition


@dataclass(slots=True)
class Chain:
    """The txns of one partition, in the order of the log entries that moved them."""

    base: int | None = None  # the txn before the first of them: None if there was none, or it is unknown
    begins_here: bool = False  # the partition's first txn is in an existing entry
    claimed_from: int | None = None  # where the table begins, if an entry without rows says so
    versions: array[int] = field(default_factory=lambda: array("q"))
    txns: array[int] = field(default_factory=lambda: array("q"))
    landed: array[int] = field(default_factory=lambda: array("q"))  # highest offset in the entry's files
    gaps: list[tuple[int, int]] = field(default_factory=list)  # declared: Kafka no longer had them
    passed: list[tuple[int, int]] = field(default_factory=list)  # skipped by `offsets --set`
    reach: int = -1  # rows up to here may be above the txn, since `offsets --set` moved it back

    @property
    def current(self) -> int | None:
        """Return the newest txn."""
        return self.txns[-1] if self.txns else self.base

    def append(self, version: int, txn: int) -> None:
        """Add the txn of an entry."""
        self.versions.append(version)
        self.txns.append(txn)
        self.landed.append(-1)

    def window(self, version: int) -> tuple[int, int] | None:
        """Return the first and last offset that an entry may have landed; None if it moved no txn."""
        at = self._index(version)
        if at is None:
            return None
        return first_after(self.txns[at - 1] if at else self.base), self.txns[at]

    def follows(self, version: int) -> bool:
        """Return whether the first existing txn is of a later entry."""
        return bool(self.versions) and version < self.versions[0]

    def saw(self, version: int, offset: int) -> None:
        """Note an offset in a file of an entry."""
        at = self._index(version)
        if at is not None:
            self.landed[at] = max(self.landed[at], offset)

    def _index(self, version: int) -> int | None:
        at = bisect_left(self.versions, version)
        return at if at < len(self.versions) and self.versions[at] == version else None


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry that removed rows, or declares that it did."""

    version: int
    operation: str
    chosen: bool  # a person chose the rows, by DELETE, UPDATE or MERGE
    removed: tuple[str, ...]  # files
    declared: tuple[Extent, ...]  # `commitInfo.removed`: ranges of offsets


@dataclass(slots=True)
class LogFacts:
    """What the existing entries of the log say, and the newest version."""

    version: int = -1
    live: dict[str, LiveFile] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    chains: dict[TopicPartition, Chain] = field(default_factory=dict)
    added_by: dict[str, int] = field(default_factory=dict)  # data file to the entry that landed its rows
    landed: dict[int, int | None] = field(default_factory=dict)  # rows of such an entry, if statistics have them
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # file to the files whose rows it took over
    removals: list[Removal] = field(default_factory=list)
    elsewhere: dict[int, set[TopicPartition]] = field(default_factory=dict)  # partitions landed under another app_id
    handed_over: dict[TopicPartition, int] = field(default_factory=dict)  # last txn before another topic took it over
    taken_over: dict[int, int] = field(default_factory=dict)  # partition to the entry that `before` compares with
    awaited: dict[int, int] = field(default_factory=dict)  # per flush: its files that were not found live yet
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    commits: int = 0

    def before(self, tp: TopicPartition, version: int) -> bool:
        """Return whether an entry is older than an `offsets --set` that gave the partition's txn to this topic.

        This is for txns that don't name the topic: the log does not say which topic's rows they counted before.
        """
        return version < self.taken_over.get(tp.partition, -1)


def first_after(txn: int | None) -> int:
    """Return the first offset after a txn, 0 if there is no txn."""
    return 0 if txn is None else txn + 1


def check_ends(facts: LogFacts, findings: Findings) -> None:
    """Check that each flush landed rows up to its txns; call after all files were read."""
    for tp, chain in facts.chains.items():
        for version, txn, landed in zip(chain.versions, chain.txns, chain.landed, strict=True):
            if facts.awaited.get(version) != 0 or landed >= txn or (landed < 0 and facts.before(tp, version)):
                continue
            if any(first <= txn <= last for first, last in (*chain.gaps, *chain.passed)):
                continue
            end = "holds no row of it" if landed < 0 else f"its last row is at offset {landed}"
            sentence = f"version {version} moved the txn of {tp} to {txn}, but {end}"
            finding = Finding("short_commit", sentence, tp=tp, offsets=(landed + 1, txn), version=version)
            findings.add(finding)
