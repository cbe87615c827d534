"""Traces: what processes told of their steps, and what the log holds, written so that TLC can hold them to the model.

    traces = Traces()
    traces.add("name", told, entries)   # steps in the order of each process; entries of the log from version 1 on
    traces.add_run("name", deployment)  # the same of real processes, whose `log` is DEBUGGING
    traces.check(folder)

Nothing is judged here: steps are renamed and numbers are moved (offsets count from 1 in the model, a txn of None is 0).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.judge import tlc
from tests.support.process.ingestors import ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.support.fakes.table import FakeEntry
    from tests.support.process.ingestors import Deployment

DEBUGGING = {"format": "json", "level": "DEBUG"}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of a log: who wrote it ("" if no ingestor), and the txns that it sets, by partition."""

    commit_id: str
    txns: Mapping[str, int]


@dataclass(slots=True)
class Trace:
    """One run of some processes on one table."""

    name: str
    told: list[dict[str, Any]]  # each with `process` and `step`; the order between processes does not matter
    entries: list[LogEntry]

    @property
    def processes(self) -> list[str]:
        """Return those who told anything, in the order in which they began to."""
        return list(dict.fromkeys(str(step["process"]) for step in self.told))

    def of(self, process: str) -> list[dict[str, Any]]:
        """Return what one process told, in order."""
        return [step for step in self.told if str(step["process"]) == process]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which traces are behaviours of the model, and why the others are not."""

    accepted: list[str]
    rejected: dict[str, str]
    seconds: float

    def text(self, traces: Sequence[Trace]) -> str:
        """Return how many were accepted, for people."""
        steps = sum(len(trace.told) for trace in traces if trace.name in self.accepted)
        count = len(self.accepted)
        return f"{count} traces of {steps} steps are behaviours of the model, {len(self.rejected)} are not"


@dataclass(slots=True)
class Traces:
    """Traces that are checked together, in one run of TLC."""

    kept: list[Trace] = field(default_factory=list)

    def add(self, name: str, told: Iterable[Mapping[str, Any]], entries: Sequence[LogEntry]) -> Trace:
        """Keep a trace; one without a commit says nothing, and is none."""
        trace = Trace(name, [dict(step) for step in told], list(entries))
        if any(step["step"] == "put" for step in trace.told):
            self.kept.append(trace)
        return trace

    def add_run(self, name: str, deployment: Deployment, route: str = ROUTE) -> Trace:
        """Keep what a deployment's processes told of a route in their logs, and what its table's log holds now."""
        told = [step for process in deployment.processes for step in told_in(process.log) if step["route"] == route]
        versions = sorted((deployment.table(route) / "_delta_log").glob(f"{'[0-9]' * 20}.json"))
        assert [int(path.stem) for path in versions] == list(range(len(versions))), "entries were cleaned up"
        return self.add(name, told, entries_of([path.read_text() for path in versions[1:]], deployment.app_id))

    def verdict(self, folder: Path) -> Verdict:
        """Let TLC look at all of them."""
        (folder / "Traced.tla").write_text(_module(self.kept))
        checked = tlc.check(folder, "Traced.tla", "Trace")
        names = [trace.name for trace in self.kept]
        accepted = [names[int(n) - 1] for n in re.findall(r'<<"ACCEPTED", (\d+)', checked.text)]
        found = re.findall(r'<<\s*"REJECTED",\s+(\d+),(.*?)>>$', checked.text, re.DOTALL | re.MULTILINE)
        rejected = {names[int(n) - 1]: " ".join(why.split()) for n, why in found}
        assert {*accepted, *rejected} == set(names), "TLC has not looked at them all"
        return Verdict(accepted, rejected, checked.seconds)

    def check(self, folder: Path) -> str:
        """Assert that all of them are behaviours of the model; return how many there were, for people."""
        if not self.kept:
            return "no traces"
        verdict = self.verdict(folder)
        assert verdict.rejected == {}
        return verdict.text(self.kept)


class Recorder:
    """Takes what several processes of one test tell, in this process."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def of(self, process: str) -> Callable[[Mapping[str, Any]], None]:
        """Return whom a process tells its steps."""
        return lambda step: self.told.append({**step, "process": process})


def told_in(log: str) -> list[dict[str, Any]]:
    """Return the steps that a process' JSON log tells; a line that a kill cut off is none."""
    lines = [line for line in log.splitlines() if line.startswith("{") and line.endswith("}")]
    return [event for event in map(json.loads, lines) if event["event"] == "step"]


def entries_of(texts: Iterable[bytes | str], app_id: str) -> list[LogEntry]:
    """Return the entries of a real log, given from version 1 on."""
    return [_entry([json.loads(line) for line in text.splitlines()], app_id) for text in texts]


def _entry(actions: list[dict[str, Any]], app_id: str) -> LogEntry:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    txns = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    return LogEntry(str(info.get("commit_id", "")), _ours(txns, app_id))


def entries_in(entries: Iterable[FakeEntry], app_id: str) -> list[LogEntry]:
    """Return the entries of a fake log."""
    return [LogEntry(entry.commit_id, _ours(entry.txns, app_id)) for entry in entries if entry.version > 0]


def _ours(txns: Mapping[str, int], app_id: str) -> dict[str, int]:
    """Return the txns by partition, as partitions are told; those of others and of guards are left out."""
    return {":".join(name.rsplit("/", 2)[1:]): txn for name, txn in txns.items() if name.startswith(f"{app_id}/")}


# --- written as TLA+ ---


def _module(traces: Sequence[Trace]) -> str:
    written = [_Written(trace) for trace in traces]
    definitions = [text for number, one in enumerate(written, start=1) for text in one.definitions(number)]
    return "\n".join(
        [
            "---- MODULE Traced ----",
            "EXTENDS Trace",
            f"TheProcs == 1..{max(len(trace.processes) for trace in traces)}",
            f"TheParts == 1..{max(len(one.numbers) for one in written)}",
            *definitions,
            f"TheTraces == <<{', '.join(f'Trace{number}' for number in range(1, len(written) + 1))}>>",
            "====",
            "",
        ]
    )


class _Written:
    """One trace as TLA+: processes, partitions and batches are numbers."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.numbers: dict[str, int] = {}
        self._ids: dict[str, str] = {}
        self._writers: dict[str, Callable[[Any], str]] = {  # of all that the model asks of a step
            **dict.fromkeys(("step", "owner"), lambda text: f'"{text}"'),
            **dict.fromkeys(("version", "slot"), str),
            **dict.fromkeys(("txn", "position"), lambda value: str(_shifted(value))),
            **dict.fromkeys(("txns", "expected", "last"), self._function),
            **dict.fromkeys(("partitions", "again", "moved"), self._set),
            "partition": lambda tp: str(self._number(tp)),
            "commit_id": self._id,
            "landing": lambda value: str(value).upper(),
        }
        for number, process in enumerate(trace.processes, start=1):
            sealed = [step["commit_id"] for step in trace.of(process) if step["step"] == "sealed"]
            self._ids.update({commit_id: f"<<{number}, {at}>>" for at, commit_id in enumerate(sealed, start=1)})
        self._steps = [self._events(trace.of(process)) for process in trace.processes]
        self._entries = [self._entry(entry) for entry in trace.entries]

    def definitions(self, number: int) -> list[str]:
        """Return the definitions of a trace: short ones, for the parser goes as deep as an expression is long."""
        names = []
        lines = []
        for at, events in enumerate(self._steps, start=1):
            names.append(f"Events{number}_{at}")
            lines += _sequence(names[-1], events)
        lines += _sequence(f"Entries{number}", self._entries)
        record = f"[procs |-> {len(names)}, events |-> <<{', '.join(names)}>>, entries |-> Entries{number}]"
        return [*lines, f"Trace{number} == {record}"]

    def _entry(self, entry: LogEntry) -> str:
        if not entry.txns:
            return '[kind |-> "other"]'
        return f'[kind |-> "batch", id |-> {self._id(entry.commit_id)}, txn |-> {self._function(entry.txns)}]'

    def _events(self, told: list[dict[str, Any]]) -> list[str]:
        """Return a process' steps, without looks that led to nothing: it ended, or the partitions were taken away."""
        marks = {step["commit_id"] for step in told if step["step"] == "put" and not step["last"]}
        events = []
        for at, step in enumerate(told):
            if step.get("commit_id") in marks:
                continue  # a note of the guards, which moves no txn of a partition
            if step["step"] != "looked":
                events.append(self._event(step))
            elif any(later.get("partition") in step["txns"] for later in told[at + 1 :]):
                events.append(self._event({**step, "step": "asked"}))
        return events

    def _event(self, step: Mapping[str, Any]) -> str:
        if step["step"] == "found":
            step = {**step, "owner": _owner(step["owner"], step["commit_id"])}
        write = self._writers
        return f"[{', '.join(f'{key} |-> {write[key](value)}' for key, value in step.items() if key in write)}]"

    def _id(self, commit_id: str) -> str:
        return self._ids.get(commit_id, "<<0, 0>>")

    def _number(self, tp: str) -> int:
        return self.numbers.setdefault(tp, len(self.numbers) + 1)

    def _set(self, tps: Iterable[str]) -> str:
        return "{" + ", ".join(str(self._number(tp)) for tp in tps) + "}"

    def _function(self, values: Mapping[str, int | None]) -> str:
        pairs = [f"{self._number(tp)} :> {_shifted(value)}" for tp, value in values.items()]
        return f"({' @@ '.join(pairs)})" if pairs else "Empty"


def _owner(owner: str | None, commit_id: str) -> str:
    if owner is None:
        return "nobody"
    return "ours" if owner == commit_id else "another"


def _shifted(txn: int | None) -> int:
    return 0 if txn is None else txn + 1


_AT_ONCE = 50


def _sequence(name: str, items: list[str]) -> list[str]:
    """Return the definition of a sequence, in pieces."""
    pieces = [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]
    lines = [f"{name}_{at} == <<{', '.join(piece)}>>" for at, piece in enumerate(pieces)]
    whole = " \\o ".join(f"{name}_{at}" for at in range(len(pieces))) or "<<>>"
    return [*lines, f"{name} == {whole}"]
