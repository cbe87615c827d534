"""Audits the Delta log: which entry moved which txn, added which file, and removed rows.

The log is walked once, from its oldest existing JSON entry. Memory grows with the number of txn, add and remove
actions in the entries, not with the number of rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ingestor.audit.delta import Checkpoint
from ingestor.audit.facts import Chain, LogFacts, Removal, first_after
from ingestor.audit.names import ORIGIN
from ingestor.audit.report import Finding, Findings, count_text, offsets_text
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ingestor.audit.delta import DeltaLog, Entry
    from ingestor.audit.marks import Extent
    from ingestor.audit.names import Names

FLUSH, BOOTSTRAP, SET, ACCEPT = "flush", "bootstrap", "set", "accept"
_CHOSEN = ("DELETE", "UPDATE", "MERGE")  # a person chooses the rows
_EVERYTHING = (None, "", "[]", "true", '["true"]')  # predicates that match every row


def walk(log: DeltaLog, names: Names, findings: Findings) -> LogFacts:
    """Read every entry, and report what is wrong with their order."""
    return _Walk(log, names, findings).run()


class _Walk:
    def __init__(self, log: DeltaLog, names: Names, findings: Findings) -> None:
        self._log = log
        self._names = names
        self._findings = findings
        self._facts = LogFacts()
        self._all_known = True  # all txns are known: a partition without one begins here
        self._rows: dict[str, int | None] = {}  # of every added file, None without statistics

    def run(self) -> LogFacts:
        facts = self._facts
        base = self._log.base()
        newest = self._log.newest_checkpoint(base)
        if base is not None:
            self._begin(base)
        if isinstance(newest, str):
            self._findings.add(Finding("checkpoint", f"{newest}: readers can't open the table by it"))
        for entry in self._log.entries():
            facts.version = entry.version
            self._txns(entry)
            self._files_of(entry)
            self._table(entry)
            for checkpoint in (base, newest):
                if isinstance(checkpoint, Checkpoint) and checkpoint.version == entry.version:
                    self._meet(checkpoint, known=base is None or base.version < checkpoint.version)
        facts.topic_ids |= dict(self._names.topic_ids())
        for name, topic in self._names.misplaced():
            sentence = f"the txn {name} counts rows of topic {self._names.origins[name].topic}, not of {topic}"
            self._findings.add(Finding("origin", sentence))
        return facts

    def _begin(self, base: Checkpoint) -> None:
        """Begin after the entries that were removed."""
        first = self._log.first
        self._facts.version = first - 1
        self._all_known = False
        if base.version == first - 1:
            self._meet(base, known=False)
        self._findings.note(
            f"log entries before version {first} are gone: rows that they landed are checked "
            "as a whole, not commit by commit; gaps that they declared and rows that they removed are not known",
        )

    def _meet(self, checkpoint: Checkpoint, *, known: bool) -> None:
        """Take the table's state from a checkpoint; if it is known from the entries already, compare the two."""
        facts = self._facts
        if not known:
            facts.live, facts.txns = dict(checkpoint.files), dict(checkpoint.txns)
            facts.metadata, facts.protocol = checkpoint.metadata, checkpoint.protocol
            self._rows |= {path: file.rows for path, file in checkpoint.files.items()}
            self._names.learn(checkpoint.txns)
            for tp, txn in self._names.partitions(checkpoint.txns).items():
                facts.chains.setdefault(tp, Chain(base=txn))
            self._all_known = True
            return
        for what, ours, theirs in (
            ("files", facts.live.keys(), checkpoint.files.keys()),
            ("txns", facts.txns.items(), checkpoint.txns.items()),
        ):
            if ours != theirs:
                sentence = (
                    f"the checkpoint of version {checkpoint.version} lacks {len(ours - theirs):,} {what} of the log's "
                    f"entries and has {len(theirs - ours):,} others: readers see another table"
                )
                self._findings.add(Finding("checkpoint", sentence, version=checkpoint.version))

    def _txns(self, entry: Entry) -> None:
        info, facts = entry.info, self._facts
        self._learn(entry)
        moved = self._names.partitions(entry.txns)
        facts.txns |= entry.txns
        kind = str(info.get("operation_kind", FLUSH))
        if kind == ACCEPT:
            self._findings.note(f"version {entry.version}: a person accepted what was removed (`offsets --accept`)")
        for tp, txn in moved.items():
            chain = facts.chains.setdefault(tp, Chain())
            self._one_txn(tp, chain, txn, entry.version, kind)
            chain.append(entry.version, txn)
        landed = sum(file.new for file in entry.adds)
        others = self._names.foreign(entry.txns)
        if landed and others:
            facts.elsewhere[entry.version] = others
        if moved and landed:
            facts.commits += 1
            if info.get("operation_kind") == FLUSH:
                facts.awaited[entry.version] = landed
        ids = info.get("topic_ids")
        if isinstance(ids, dict):
            facts.topic_ids |= {tp: str(ids[tp.topic]) for tp in moved if tp.topic in ids}
        self._gaps(entry)

    def _learn(self, entry: Entry) -> None:
        """Take in origins of rows: a txn's first origin also holds for earlier entries, a later one hands it over."""
        names, facts = self._names, self._facts
        tells = any(text.startswith(ORIGIN) for text in entry.txns)
        was = {text: (text in names.origins, names.partition(text)) for text in facts.txns} if tells else {}
        names.learn(entry.txns)
        for text, (told, tp) in was.items():
            now = names.partition(text)
            if tp is None or now is None:
                continue
            if not told and text in names.origins and entry.info.get("operation_kind") == SET and not names.by_topic:
                facts.taken_over[tp.partition] = entry.version
            if now == tp:
                continue
            if told:
                facts.handed_over[tp] = facts.txns[text]
            elif tp in facts.chains:
                facts.chains[now] = facts.chains.pop(tp)

    def _one_txn(self, tp: TopicPartition, chain: Chain, txn: int, version: int, kind: str) -> None:
        before = chain.current
        if before is None and self._all_known:
            chain.begins_here = True
            chain.claimed_from = first_after(txn) if kind in (BOOTSTRAP, SET) else None
            if kind == SET:
                self._findings.note(f"version {version}: `offsets --set` let {tp} begin at offset {first_after(txn)}")
        elif kind == SET and before is not None:
            self._set(tp, chain, before, txn, version)
        elif before is not None and txn <= before:
            sentence = f"version {version} moved the txn of {tp} from {before} to {txn}, not forward"
            self._findings.add(Finding("txn_back", sentence, tp=tp, version=version))

    def _set(self, tp: TopicPartition, chain: Chain, before: int, txn: int, version: int) -> None:
        """Apply an `offsets --set`: forward it skips offsets, back it lets them be ingested again."""
        told = f"version {version}: `offsets --set` moved the txn of {tp} from {before} to {txn}"
        if txn > before:
            passed = (first_after(before), txn)
            chain.passed.append(passed)
            self._findings.note(f"{told}: it passed over {offsets_text(*passed)}", gone=True)
            return
        self._findings.note(told)
        chain.reach = max(chain.reach, before)
        chain.gaps, chain.passed = (
            [(first, min(last, txn)) for first, last in some if first <= txn] for some in (chain.gaps, chain.passed)
        )
        if chain.claimed_from is not None:
            chain.claimed_from = min(chain.claimed_from, first_after(txn))

    def _gaps(self, entry: Entry) -> None:
        for tp, first, last, gap in self._ranges(entry, "gaps"):
            self._facts.chains.setdefault(tp, Chain()).gaps.append((first, last))
            told = f"declared lost: {tp} {offsets_text(first, last)} ({gap.get('reason')})"
            self._findings.note(told, gone=True)

    def _ranges(self, entry: Entry, name: str) -> Iterator[tuple[TopicPartition, int, int, Mapping[str, Any]]]:
        """Yield the ranges of offsets that an entry lists under a name, each with its other fields."""
        try:
            said = entry.info.get(name) or ()
            for each in json.loads(said) if isinstance(said, str) else said:  # delta-rs writes metadata as text
                yield (
                    TopicPartition(str(each["topic"]), int(each["partition"])),
                    int(each["first"]),
                    int(each["last"]),
                    each,
                )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            sentence = f"version {entry.version} declares {name} in a form that can't be read"
            self._findings.add(Finding("declared", sentence, version=entry.version))

    def _files_of(self, entry: Entry) -> None:
        facts = self._facts
        moved = bool(self._names.partitions(entry.txns))
        before, removed = tuple(entry.removes), bool(entry.removes)
        for path in before:
            facts.live.pop(path, None)
        for file in entry.adds:
            path, seen = file.path, file.path in self._rows
            if path in facts.live or (seen and file.new and moved):
                sentence = f"version {entry.version} adds {path}, which an earlier entry added"
                self._findings.add(Finding("added_twice", sentence, version=entry.version, file=path))
            elif file.new and not seen and (moved or not (removed or entry.operation == "RESTORE")):
                facts.added_by[path] = entry.version  # otherwise it has rows of earlier entries, as after DELETE
            facts.live[path] = file
            self._rows[path] = file.rows
            if removed and not seen:
                facts.replaced[path] = before
        rows = [file.rows for file in entry.adds if facts.added_by.get(file.path) == entry.version]
        if rows:
            facts.landed[entry.version] = None if None in rows else sum(number or 0 for number in rows)
        declared = self._declared(entry)
        if declared or (removed and (entry.takes_rows or entry.operation == "RESTORE")):
            chosen = _chosen(entry) and not declared  # an entry that declares must declare all its removals
            facts.removals.append(Removal(entry.version, entry.operation, chosen, before, declared))
        elif removed:
            self._rewrite(entry)

    def _declared(self, entry: Entry) -> tuple[Extent, ...]:
        """Return the ranges of offsets that an entry declares as removed for good."""
        ranges = []
        rows: dict[tuple[TopicPartition, str], int] = {}
        for tp, first, last, each in self._ranges(entry, "removed"):
            key = tp, str(each.get("why"))
            count = each.get("rows")
            rows[key] = rows.get(key, 0) + (count if type(count) is int else 0)
            ranges.append((tp, first, last))
        for (tp, why), total in rows.items():
            told = f"version {entry.version} declares {count_text(total, 'row')} of {tp} removed for good ({why})"
            self._findings.note(told, gone=True)
        return tuple(ranges)

    def _rewrite(self, entry: Entry) -> None:
        """Check that a rewrite kept the number of rows, if it is known before and after."""
        before = [self._rows.get(path) for path in entry.removes]
        after = [file.rows for file in entry.adds]
        if None in before or None in after:
            return
        was, now = sum(filter(None, before)), sum(filter(None, after))
        if was != now:
            sentence = f"version {entry.version} ({entry.operation}) turned {was:,} rows into {now:,}"
            self._findings.add(Finding("rewrite", sentence, version=entry.version))

    def _table(self, entry: Entry) -> None:
        facts = self._facts
        if entry.metadata is not None:
            was, now = (str((data or entry.metadata).get("id")) for data in (facts.metadata, entry.metadata))
            if was != now:
                sentence = f"version {entry.version} made it another table: its id changed"
                self._findings.add(Finding("replaced", sentence, version=entry.version))
            facts.metadata = entry.metadata
        facts.protocol = entry.protocol or facts.protocol


def _chosen(entry: Entry) -> bool:
    """Return whether a person chose the removed rows; a DELETE without a predicate empties the table."""
    parameters = entry.info.get("operationParameters")
    predicate = parameters.get("predicate") if isinstance(parameters, dict) else None
    return entry.operation in _CHOSEN and (entry.operation != "DELETE" or predicate not in _EVERYTHING)
