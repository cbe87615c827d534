"""Steps: all that a route's jobs do to silver and quarantine, one after the other, each claimed before it begins.

A claim is a file that is written once and says all that decides: the plan, the raw files, the versions that are read.
Its number is the txn of the step's commits, its hash stands in each of them. So a step comes out the same whoever
carries it out, whoever is first wins each commit, and one that comes late finds its number taken.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from ingestor.errors import OccExhaustedError
from spark_jobs.plan.plan import Plan
from spark_jobs.rows.balance import Balance
from spark_jobs.steps.raw import Batch, Position

FOLDER = "_spark_jobs"  # of a checkpoint, for what is the jobs' own
Kind = Literal["parse", "reparse", "reset"]


class Superseded(OccExhaustedError):  # noqa: N818 - a verdict, as much as a failure
    """Another run has gone past the step that this one was at."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: another run has taken over", hint="nothing is lost; start again when it is done")


@dataclass(frozen=True, slots=True)
class Tables:
    """Which tables a step knows, by their ids; None: it is yet to be made."""

    raw: str | None
    silver: str | None
    quarantine: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """A claim."""

    number: int
    kind: Kind
    app_id: str  # of the txns
    by: str  # the run that has claimed it
    tables: Tables
    begin: Position | None  # where in raw parsing stands
    plan: Plan | None = None
    batch: Batch | None = None  # of a parse
    quarantine_version: int | None = None  # that a reparse reads
    empty: bool = False  # whether a reset deletes all rows
    text: str | None = None  # as it was claimed: another version of the jobs may write the same step otherwise

    @property
    def claim(self) -> str:
        """Return what stands in the commits of the step."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the step as text."""
        if self.text is not None:
            return self.text
        plan = None if self.plan is None else json.loads(self.plan.to_json())
        names = [field.name for field in dataclasses.fields(self) if field.name not in ("plan", "text")]
        own = {name: getattr(self, name) for name in names}
        return json.dumps({**own, "plan": plan}, default=dataclasses.asdict, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Step:
        """Return the step that a text holds."""
        raw: dict[str, Any] = json.loads(text)
        raw["tables"] = Tables(**raw["tables"])
        raw["begin"] = position(raw["begin"])
        raw["plan"] = None if raw["plan"] is None else Plan.from_json(json.dumps(raw["plan"]))
        if raw["batch"] is not None:
            batch = {"replaced": (), **raw["batch"]}  # which an older version did not write
            files = {name: tuple(batch[name]) for name in ("files", "replaced")}
            raw["batch"] = Batch(**{**batch, **files, "end": Position(**batch["end"])})
        return cls(**raw, text=text.strip())


@dataclass(frozen=True, slots=True)
class End:
    """How a step ended, and where in raw parsing stands then."""

    by: str
    position: Position | None
    void: bool = False  # given up before anything of it had landed
    balance: Balance = dataclasses.field(default_factory=Balance)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> End:
        """Return what a text holds."""
        raw: dict[str, Any] = json.loads(text)
        return cls(raw["by"], position(raw["position"]), raw["void"], Balance(**raw["balance"]))


@dataclass(frozen=True, slots=True)
class Head:
    """How far the steps have come. `step` is the newest, and open as long as there is no `end`."""

    number: int
    app_id: str
    position: Position | None  # where in raw the next batch begins
    step: Step | None = None
    end: End | None = None

    @property
    def open(self) -> Step | None:
        """The step that has not ended, None if all have."""
        return self.step if self.end is None else None


def position(raw: dict[str, Any] | None) -> Position | None:
    """Return a position from its JSON."""
    return None if raw is None else Position(**raw)
