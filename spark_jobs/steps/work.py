"""A route's steps, one after the other: taken up if one is open, else claimed, carried out, and ended.

Many runs may be at it at once, with other configurations too. Each carries out what is claimed as it is claimed, so it
does not matter which of them is quicker; and where none could go on, for its plan fails, a mended plan takes its place
as long as nothing has landed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ingestor import logs
from spark_jobs.rows.balance import Balance
from spark_jobs.runtime.places import TableLog
from spark_jobs.steps import moving, reset
from spark_jobs.steps.batch import with_registry
from spark_jobs.steps.checkpoint import Checkpoint
from spark_jobs.steps.prepare import known_tables, prepare
from spark_jobs.steps.steps import End, Step, Superseded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.plan.plan import Plan
    from spark_jobs.plan.route import Route
    from spark_jobs.steps.steps import Head, Kind
    from spark_jobs.steps.tables import Sink

_TRIES_MAX = 100  # to be the one who claims; each time another run has done a step


class Work:
    """One run's part in a route's steps."""

    def __init__(self, session: SparkSession, route: Route) -> None:
        """See that checkpoint, tables and plan go together; make the tables if there are none."""
        self._route = route
        self._checkpoint = Checkpoint.of(session, route)
        self.job = prepare(session, route, self._checkpoint)
        self._tables = known_tables(session, route)
        head = self._checkpoint.head()
        self._app_id = self._checkpoint.new_app_id() if head is None else head.app_id

    def take_up(self, kind: Kind) -> Balance:
        """End the step that another run has left open; return its balance if it is of this kind.

        By its own plan, or by none: if the plan or the rows have changed, and nothing has landed, it is given up.
        """
        head = self._checkpoint.head()
        step = None if head is None else head.open
        if step is None:
            return Balance()
        logs.get().info("taken up", route=self._route.name, step=step.number, kind=step.kind, claimed_by=step.by)
        if self._to_give_up(step) and self._given_up(step):
            self._checkpoint.end(step, End(self._checkpoint.by, step.begin, void=True))
            return Balance()
        found = self._carry_out(step)
        return found if step.kind == kind else Balance()

    def parse_next(self, newest: int) -> Balance | None:
        """Bring one batch of raw to its end, up to a version; None if all are parsed."""
        head = self._checkpoint.head()
        if head is not None and head.open is not None:
            return self.take_up("parse")
        batch = self.job.raw.next(None if head is None else head.position, newest)
        if batch is None:
            return None
        plan = with_registry(self.job.plan, self.job.raw.rows(batch), self.job.registry_url)
        step = dataclasses.replace(self._after(head, "parse"), plan=plan, batch=batch)
        return self._carry_out(step) if self._checkpoint.claim(step) else Balance()

    def reparse(self) -> Balance:
        """Bring a reparse of what is in quarantine now to its end."""
        total = Balance()
        for _ in range(_TRIES_MAX):
            total += self.take_up("reparse")
            head = self._checkpoint.head()
            if head is not None and head.open is not None:
                continue
            version = TableLog(self.job.session, self.job.quarantine.table).version
            plan = moving.plan_of(self.job, version)
            step = dataclasses.replace(self._after(head, "reparse"), plan=plan, quarantine_version=version)
            if self._checkpoint.claim(step):
                return total + self._carry_out(step)
        raise Superseded(f"route {self._route.name}, reparse")

    def _after(self, head: Head | None, kind: Kind) -> Step:
        """Return the claim that comes after the last step, which must have ended."""
        number, begin = (0, None) if head is None else (head.number + 1, head.position)
        app_id = self._app_id if head is None else head.app_id
        return Step(number, kind, app_id, self._checkpoint.by, self._tables, begin)

    def _carry_out(self, step: Step) -> Balance:
        """Do what is left of a step; return its balance if no other run has told it."""
        balance, end = Balance(), step.begin
        if step.kind == "parse":
            assert step.batch is not None  # noqa: S101 - each claim of a batch has one
            balance, end = self.job.process(step), step.batch.end
            balance.require_even(f"route {self._route.name}, batch {step.number}")
        elif step.kind == "reparse":
            balance = moving.process(self.job, step)
        else:
            reset.process(self.job.session, (self.job.silver.table, self.job.quarantine.table), step)
            end = None
        mine = self._checkpoint.end(step, End(self._checkpoint.by, end, balance=balance))
        return balance if mine else Balance()

    def _to_give_up(self, step: Step) -> bool:
        """Tell whether a step would land what is no longer wanted, or another run has begun to give it up."""
        if step.plan is None:
            return False
        landed = self._order(step)[0].landed(step)
        if landed is not None:
            return landed.void
        changed = step.batch is not None and self.job.raw.deleted_since(step.batch.version)
        return changed or not _same(step.plan, self.job.plan)

    def _order(self, step: Step) -> tuple[Sink, Sink]:
        """Return the tables in the order that a step writes."""
        silver, quarantine = self.job.silver, self.job.quarantine
        return (quarantine, silver) if step.kind == "parse" else (silver, quarantine)

    def _given_up(self, step: Step) -> bool:
        """Keep a step from landing, table by table in the order that it writes; False if it has landed."""
        for sink in self._order(step):
            landed = sink.landed(step) or sink.fence(step, void=True)
            if not landed.void:
                return False
        return True


def _same(one: Plan, other: Plan) -> bool:
    """Tell whether two plans are of one configuration; what the registry says comes from the rows."""
    return one.with_writers({}) == other.with_writers({})
