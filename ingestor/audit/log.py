"""Audits the Delta log: which entry moved which txn, and which entry added which file.

The log is walked once, entry by entry, as far back as its JSON files go. What is kept grows with
the number of txn and add actions of the entries that are still there, never with the number of rows.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ingestor import deltalog
from ingestor.audit.report import Finding, Findings, offsets_text
from ingestor.errors import RefusedError, Unavailable
from ingestor.ledger import position_after
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingestor.ledger import AppIds

_ENTRY_NAME = re.compile(r"(\d{20})\.json")
FLUSH, SET = "flush", "set"


@dataclass(slots=True)
class Chain:
    """The txns of one partition, in the order of the log entries that moved it."""

    base: int | None = None  # the txn before the first of them: None if there was none, or nobody knows
    begins_here: bool = False  # its first txn is in the log that is left
    claimed_from: int | None = None  # where the table begins, if an entry without rows said so
    versions: array[int] = field(default_factory=lambda: array("q"))
    txns: array[int] = field(default_factory=lambda: array("q"))
    landed: array[int] = field(default_factory=lambda: array("q"))  # highest offset seen in the files
    skipped: list[tuple[int, int]] = field(default_factory=list)  # declared: gaps, and set by a person
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


@dataclass(slots=True)
class LogFacts:
    """What the entries of the log say that are still there."""

    first_version: int
    chains: dict[TopicPartition, Chain] = field(default_factory=dict)
    added_by: dict[str, int] = field(default_factory=dict)  # data files, by the entry that landed their rows
    elsewhere: dict[int, set[TopicPartition]] = field(default_factory=dict)  # partitions landed under another app_id
    awaited: dict[int, int] = field(default_factory=dict)  # per flush: its files not yet seen alive
    topic_ids: dict[str, str] = field(default_factory=dict)
    commits: int = 0


def first_after(txn: int | None) -> int:
    """Return the first offset that may follow a txn; 0 where there is none."""
    position = position_after(txn)
    return 0 if position is None else position


def walk(files: deltalog.Files, version: int, app_ids: AppIds, findings: Findings) -> LogFacts:
    """Read every entry up to a version, and say what is wrong with their order."""
    return _Walk(files, version, app_ids, findings).run()


class _Walk:
    def __init__(self, files: deltalog.Files, version: int, app_ids: AppIds, findings: Findings) -> None:
        self._files = files
        self._version = version
        self._app_ids = app_ids
        self._findings = findings
        self._facts = LogFacts(first_version=_first_entry(files, version))
        self._base: Mapping[TopicPartition, int] = {}
        self._base_known = True
        self._rows: dict[str, int | None] = {}  # of every file that was added, where its statistics tell
        self._table_id: str | None = None

    def run(self) -> LogFacts:
        facts = self._facts
        self._read_base()
        try:
            for entry in deltalog.entries(self._files, facts.first_version, self._version):
                self._txns(entry)
                self._files_of(entry)
                self._metadata(entry)
        except LookupError as gone:
            msg = f"{gone.args[0]} was cleaned up while the log was being read; read it again"
            raise Unavailable(msg) from gone
        return facts

    def _read_base(self) -> None:
        first = self._facts.first_version
        if first == 0:
            return
        try:
            self._base = self._app_ids.read(deltalog.txns_at(self._files, first - 1))
        except RefusedError:
            self._base_known = False
        for tp, txn in self._base.items():
            self._facts.chains[tp] = Chain(base=txn)
        self._findings.note(
            f"log entries before version {first} are gone: rows that they landed are checked "
            "as a whole, not commit by commit, and gaps that they declared are not known",
        )

    def _txns(self, entry: deltalog.Entry) -> None:
        info = entry.commit_info
        moved = self._app_ids.read(entry.txns)
        for tp, txn in moved.items():
            chain = self._facts.chains.setdefault(tp, Chain())
            self._one_txn(tp, chain, txn, entry.version, str(info.get("operation_kind", FLUSH)))
            chain.append(entry.version, txn)
        landed = sum(add.data_change for add in entry.adds)
        others = {other for app_id in entry.txns if (other := self._app_ids.parse_foreign(app_id)) is not None}
        if landed and others:
            self._facts.elsewhere[entry.version] = others
        if moved and landed:
            self._facts.commits += 1
            if info.get("operation_kind") == FLUSH:
                self._facts.awaited[entry.version] = landed
        self._declared(info)

    def _one_txn(self, tp: TopicPartition, chain: Chain, txn: int, version: int, kind: str) -> None:
        before = chain.current
        if before is None and self._base_known:
            chain.begins_here = True
            chain.claimed_from = None if kind == FLUSH else first_after(txn)
        if kind == SET:
            self._set(tp, chain, txn, version)
        elif before is not None and txn <= before:
            sentence = f"version {version} moved the txn of {tp} from {before} to {txn}, not forward"
            self._findings.add(Finding("txn_back", sentence, tp=tp, version=version))

    def _set(self, tp: TopicPartition, chain: Chain, txn: int, version: int) -> None:
        """Take in what a person did: offsets set over are skipped, those set back come again."""
        before = chain.current
        if before is None or txn == before:
            return
        if txn > before:
            chain.skipped.append((first_after(before), txn))
        else:
            chain.reach = max(chain.reach, before)
            chain.skipped = [(first, min(last, txn)) for first, last in chain.skipped if first <= txn]
            if chain.claimed_from is not None:
                chain.claimed_from = min(chain.claimed_from, first_after(txn))
        self._findings.note(f"version {version}: a person set the txn of {tp} from {before} to {txn}")

    def _declared(self, info: Mapping[str, Any]) -> None:
        """Take in what a commit says beside its actions: topic ids, and offsets lost for good."""
        self._facts.topic_ids |= info.get("topic_ids") or {}
        for gap in info.get("gaps") or ():
            tp = TopicPartition(gap["topic"], gap["partition"])
            self._facts.chains.setdefault(tp, Chain()).skipped.append((gap["first"], gap["last"]))
            lost = f"{tp} {offsets_text(gap['first'], gap['last'])}"
            self._findings.note(f"declared lost: {lost} ({gap['reason']})")

    def _files_of(self, entry: deltalog.Entry) -> None:
        moved = self._app_ids.read(entry.txns)
        for add in entry.adds:
            path = unquote(add.path)
            if add.data_change and path in self._rows:
                sentence = f"version {entry.version} adds {path}, which an earlier entry added"
                self._findings.add(Finding("added_twice", sentence, version=entry.version, file=path))
            elif add.data_change and (moved or not entry.removes):  # else it rewrites rows, as DELETE does
                self._facts.added_by[path] = entry.version
            self._rows[path] = add.rows
        if not entry.removes:
            return
        if entry.adds and not any(add.data_change for add in entry.adds):
            self._rewrite(entry)
        else:
            operation = entry.commit_info.get("operation", "unnamed operation")
            count = len(entry.removes)
            self._findings.note(f"version {entry.version} ({operation}) removed {count:,} files")

    def _rewrite(self, entry: deltalog.Entry) -> None:
        """Check that files were replaced by as many rows, where both sides are known."""
        before = [self._rows.get(unquote(path)) for path in entry.removes]
        after = [add.rows for add in entry.adds]
        known = [rows for rows in before + after if rows is not None]
        if len(known) < len(before) + len(after):
            return
        was, now = sum(known[: len(before)]), sum(known[len(before) :])
        if was != now:
            operation = entry.commit_info.get("operation", "a rewrite")
            sentence = f"version {entry.version} ({operation}) turned {was:,} rows into {now:,}"
            self._findings.add(Finding("rewrite", sentence, version=entry.version))

    def _metadata(self, entry: deltalog.Entry) -> None:
        if entry.metadata is None:
            return
        table_id = str(entry.metadata.get("id"))
        if self._table_id not in (None, table_id):
            sentence = f"version {entry.version} made it another table: its id changed"
            self._findings.add(Finding("replaced", sentence, version=entry.version))
        self._table_id = table_id


def _first_entry(files: deltalog.Files, version: int) -> int:
    """Return the oldest version from which on no entry is missing."""
    names = (_ENTRY_NAME.fullmatch(name) for name in files.list(deltalog.LOG_DIR))
    present = {int(name[1]) for name in names if name is not None}
    first = version
    while first - 1 in present:
        first -= 1
    return first


def check_ends(facts: LogFacts, findings: Findings) -> None:
    """Check, after every file was read, that each flush landed rows up to its txns."""
    for tp, chain in facts.chains.items():
        for version, txn, landed in zip(chain.versions, chain.txns, chain.landed, strict=True):
            if facts.awaited.get(version) != 0 or landed >= txn:
                continue
            if any(first <= txn <= last for first, last in chain.skipped):
                continue
            end = "holds no row of it" if landed < 0 else f"its last row is at offset {landed}"
            sentence = f"version {version} moved the txn of {tp} to {txn}, but {end}"
            finding = Finding("short_commit", sentence, tp=tp, offsets=(landed + 1, txn), version=version)
            findings.add(finding)
