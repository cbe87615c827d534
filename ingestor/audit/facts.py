"""What an audit keeps of the Delta log: each partition's txns, who landed which file, and who took rows out."""

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
    """The txns of one partition, in the order of the log entries that moved it."""

    base: int | None = None  # the txn before the first of them: None if there was none, or nobody knows
    begins_here: bool = False  # its first txn is in the log that is left
    claimed_from: int | None = None  # where the table begins, if an entry without rows said so
    versions: array[int] = field(default_factory=lambda: array("q"))
    txns: array[int] = field(default_factory=lambda: array("q"))
    landed: array[int] = field(default_factory=lambda: array("q"))  # highest offset seen in the files
    gaps: list[tuple[int, int]] = field(default_factory=list)  # declared: Kafka had not got them any more
    passed: list[tuple[int, int]] = field(default_factory=list)  # a person set the txn over them
    reach: int = -1  # rows up to here may stand beyond the txn: a person set it back

    @property
    def current(self) -> int | None:
        """Return the newest txn."""
        return self.txns[-1] if self.txns else self.base

    def append(self, version: int, txn: int) -> None:
        """Take in the txn of an entry."""
        self.versions.append(version)
        self.txns.append(txn)
        self.landed.append(-1)

    def window(self, version: int) -> tuple[int, int] | None:
        """Return the first and last offset that an entry may land; None if it moved no txn."""
        at = self._index(version)
        if at is None:
            return None
        return first_after(self.txns[at - 1] if at else self.base), self.txns[at]

    def follows(self, version: int) -> bool:
        """Tell whether its first txn that the log still holds came after an entry."""
        return bool(self.versions) and version < self.versions[0]

    def saw(self, version: int, offset: int) -> None:
        """Note that a file of an entry holds an offset."""
        at = self._index(version)
        if at is not None:
            self.landed[at] = max(self.landed[at], offset)

    def _index(self, version: int) -> int | None:
        at = bisect_left(self.versions, version)
        return at if at < len(self.versions) and self.versions[at] == version else None


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry that took rows out of the table, or says that it did."""

    version: int
    operation: str
    chosen: bool  # a person named the rows: by DELETE, UPDATE or MERGE
    removed: tuple[str, ...]  # files
    declared: tuple[Extent, ...]  # `commitInfo.removed`: ranges of offsets


@dataclass(slots=True)
class LogFacts:
    """What the entries of the log say that are still there, and the newest version that they lead to."""

    version: int = -1
    live: dict[str, LiveFile] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    chains: dict[TopicPartition, Chain] = field(default_factory=dict)
    added_by: dict[str, int] = field(default_factory=dict)  # data files, by the entry that landed their rows
    landed: dict[int, int | None] = field(default_factory=dict)  # rows of such an entry, where statistics tell
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # files, by those whose rows they took over
    removals: list[Removal] = field(default_factory=list)
    elsewhere: dict[int, set[TopicPartition]] = field(default_factory=dict)  # partitions landed under another app_id
    handed_over: dict[TopicPartition, int] = field(default_factory=dict)  # the last txn of those that another took
    taken_over: dict[int, int] = field(default_factory=dict)  # see `before`: by partition, the entry that tells
    awaited: dict[int, int] = field(default_factory=dict)  # per flush: its files not yet seen alive
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    commits: int = 0

    def before(self, tp: TopicPartition, version: int) -> bool:
        """Tell whether an entry is from before a person let the partition's topic have a txn that may be another's.

        So it is where txns don't name the topic, and the log does not tell whose rows they counted until then.
        """
        return version < self.taken_over.get(tp.partition, -1)


def first_after(txn: int | None) -> int:
    """Return the first offset that may follow a txn: a txn is the last offset landed; 0 where there is none."""
    return 0 if txn is None else txn + 1


def check_ends(facts: LogFacts, findings: Findings) -> None:
    """Check, after every file was read, that each flush landed rows up to its txns."""
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
