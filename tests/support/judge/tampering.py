"""Traces that nobody can have made: each is a true one, changed in one place. The model must reject them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.judge.traces import LogEntry, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Step = dict[str, Any]


def acknowledged(traces: Sequence[Trace]) -> Iterator[tuple[Trace, str]]:
    """Yield the batches that were acknowledged, each with its trace."""
    for trace in traces:
        for step in trace.told:
            if step["step"] == "acknowledged":
                yield trace, step["commit_id"]


def _without(trace: Trace, kind: str, commit_id: str) -> list[Step]:
    return [step for step in trace.told if (step["step"], step.get("commit_id")) != (kind, commit_id)]


def _changed(trace: Trace, kind: str, commit_id: str, key: str) -> list[Step]:
    """Return the steps with the first partition's number in one of them one higher."""

    def change(step: Step) -> Step:
        if (step["step"], step.get("commit_id")) != (kind, commit_id):
            return step
        tp, number = next(iter(step[key].items()))
        return {**step, key: {**step[key], tp: 0 if number is None else number + 1}}

    return [change(step) for step in trace.told]


def _two_entries_swapped(traces: Sequence[Trace]) -> Trace:
    for trace in traces:
        for at in range(len(trace.entries) - 1):
            one, other = trace.entries[at : at + 2]
            if one.commit_id and other.commit_id:
                return Trace("", trace.told, [*trace.entries[:at], other, one, *trace.entries[at + 2 :]])
    raise AssertionError("no two commits of ours follow each other")


def _two_puts_swapped(traces: Sequence[Trace]) -> Trace:
    for trace in traces:
        for process in trace.processes:
            puts = [n for n, step in enumerate(trace.told) if (step["step"], step["process"]) == ("put", process)]
            ids = [trace.told[n]["commit_id"] for n in puts]
            if len(set(ids)) > 1:
                told = list(trace.told)
                first, second = puts[0], puts[ids.index(next(one for one in ids if one != ids[0]))]
                told[first], told[second] = told[second], told[first]
                return Trace("", told, trace.entries)
    raise AssertionError("nobody put two batches")


def _one_batch(change: Callable[[Trace, str], tuple[list[Step], list[LogEntry]]]) -> Callable[[Sequence[Trace]], Trace]:
    """Return what changes the first acknowledged batch of all."""

    def forge(traces: Sequence[Trace]) -> Trace:
        trace, commit_id = next(acknowledged(traces))
        return Trace("", *change(trace, commit_id))

    return forge


def _entry_of_nobody(trace: Trace, commit_id: str) -> list[LogEntry]:
    return [LogEntry("", {}) if entry.commit_id == commit_id else entry for entry in trace.entries]


def _entry_with_another_txn(trace: Trace, commit_id: str) -> list[LogEntry]:
    def change(entry: LogEntry) -> LogEntry:
        return LogEntry(entry.commit_id, {tp: txn + 1 for tp, txn in entry.txns.items()})

    return [change(entry) if entry.commit_id == commit_id else entry for entry in trace.entries]


TAMPERINGS: dict[str, Callable[[Sequence[Trace]], Trace]] = {
    "two entries of the log swapped": _two_entries_swapped,
    "two puts of a process swapped": _two_puts_swapped,
    "a compared txn changed": _one_batch(lambda t, c: (_changed(t, "compared", c, "txns"), t.entries)),
    "a comparison left out": _one_batch(lambda t, c: (_without(t, "compared", c), t.entries)),
    "a put left out": _one_batch(lambda t, c: (_without(t, "put", c), t.entries)),
    "another txn put than sealed": _one_batch(lambda t, c: (_changed(t, "put", c, "last"), t.entries)),
    "a file that is built on another txn": _one_batch(lambda t, c: (_changed(t, "sealed", c, "expected"), t.entries)),
    "acknowledged without an entry": _one_batch(lambda t, c: (list(t.told), _entry_of_nobody(t, c))),
    "an entry with another txn": _one_batch(lambda t, c: (list(t.told), _entry_with_another_txn(t, c))),
}
