"""A route's checkpoint: its steps, each claimed by one file and ended by another, and which tables they belong to.

Both files are created where none is, whole and synced: of two runs one wins. The next step is claimed when the last
one has ended, so what is open is at most the newest; whoever comes takes it up. Checkpoints that Spark's streaming kept
for earlier versions of the jobs are gone on from (`legacy`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ingestor.errors import ConfigError
from spark_jobs.runtime.places import Files, TableLog, spark_path
from spark_jobs.steps.legacy import Legacy
from spark_jobs.steps.steps import FOLDER, End, Head, Step, Superseded, Tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_jobs.plan.route import Route

T = TypeVar("T")
_KEPT = 20  # steps
_RESET = "to parse from the start, keeping what the tables have, run `spark_jobs reset`; or bring the checkpoint back"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One route's checkpoint."""

    session: SparkSession
    place: str
    prefix: str  # of the txn ids of all checkpoints that the route ever had
    by: str = field(default_factory=lambda: uuid.uuid4().hex[:12])  # this run

    @classmethod
    def of(cls, session: SparkSession, route: Route) -> Checkpoint:
        """Return a route's checkpoint."""
        return cls(session, route.settings.checkpoint, route.prefix)

    @property
    def path(self) -> str:
        """Return where it lies, as Spark calls it."""
        return spark_path(self.place)

    @property
    def folder(self) -> str:
        """Return where its own files lie."""
        return f"{self.path}/{FOLDER}"

    @property
    def _legacy(self) -> Legacy:
        return Legacy(self.session, self.place, self.prefix)

    def head(self) -> Head | None:
        """Return how far the steps have come; None if there are none."""
        numbers = self._numbers()
        if not numbers:
            return self._legacy.head()
        number = max(numbers)
        step = self._read(self._step_path(number), Step.from_json)
        end = self._read(self._end_path(number), End.from_json)
        if step is None:
            raise ConfigError(f"checkpoint {self.place}: {self._step_path(number)} is gone", hint=_RESET)
        return Head(number, step.app_id, step.begin if end is None else end.position, step, end)

    def next_number(self) -> int:
        """Return the number after all that were ever claimed here, whether they can be read or not."""
        return max([*self._numbers(), *self._legacy.numbers()], default=-1) + 1

    def new_app_id(self) -> str:
        """Return a txn id for steps that don't go on from others."""
        return f"{self.prefix}{uuid.uuid4().hex[:12]}"

    def claim(self, step: Step) -> bool:
        """Claim a step; False if another run has claimed that number."""
        if not Files(self.session).create(self._step_path(step.number), step.to_json()):
            return False
        if max(self._numbers()) > step.number:  # its file was cleaned away: this run slept through many steps
            raise Superseded(f"step {step.number}")
        return True

    def end(self, step: Step, end: End) -> bool:
        """Write down that a step has ended; False if another run has done so."""
        mine = Files(self.session).create(self._end_path(step.number), end.to_json())
        self._clean(step.number, end)
        return mine

    def require_known(self, tables: Tables, silver: str, quarantine: str, raw: str) -> None:
        """Refuse tables that are not those of the last step, and a checkpoint that is not that of the tables.

        What is gone would be made anew and stay without the rows that were parsed already.
        """
        head = self.head()
        if head is None:
            self._require_new(silver, quarantine)
            return
        for place in (silver, quarantine):
            log = TableLog(self.session, place)
            txn = log.txn(head.app_id) if log.exists else None
            if txn is not None and txn > head.number:
                raise ConfigError(f"checkpoint {self.place} ends before batch {txn}, which {place} has", hint=_RESET)
        places = {"silver": silver, "quarantine": quarantine}
        known = head.step.tables if head.step is not None else self._legacy.tables(head, places)
        for name, place in {**places, "raw": raw}.items():
            was, found = getattr(known, name), getattr(tables, name)
            if was is not None and was != found:
                raise _unknown(name, place, gone=found is None)

    def _require_new(self, *places: str) -> None:
        if Files(self.session).names(f"{self.path}/offsets"):
            raise ConfigError(f"checkpoint {self.place} is not one of ours", hint="choose another checkpoint")
        for place in places:
            log = TableLog(self.session, place)
            if log.exists and log.txn_ids(self.prefix):
                raise ConfigError(f"checkpoint {self.place} is new, but {place} has batches of it", hint=_RESET)

    def _numbers(self) -> list[int]:
        names = Files(self.session).names(f"{self.folder}/steps")
        return [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdecimal()]

    def _read(self, path: str, parse: Callable[[str], T]) -> T | None:
        text = Files(self.session).read(path)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, KeyError, TypeError):
            what = "damaged" if text.strip() else "empty"
            msg = f"checkpoint {self.place}: {path} is {what}, and so it is not known how far parsing has come"
            raise ConfigError(msg, hint=_RESET) from None

    def _clean(self, number: int, end: End) -> None:
        """Remove steps of long ago, and the list of files that only a first parse needs."""
        files = Files(self.session)
        for old in self._numbers():
            if old <= number - _KEPT:
                files.remove(self._step_path(old))
                files.remove(self._end_path(old))
        if end.position is None or end.position.snapshot:
            return
        for name in files.names(self.folder):
            if name.startswith("files-"):
                files.remove(f"{self.folder}/{name}")

    def _step_path(self, number: int) -> str:
        return f"{self.folder}/steps/{number:010d}.json"

    def _end_path(self, number: int) -> str:
        return f"{self.folder}/steps/{number:010d}.end"


def _unknown(name: str, place: str, *, gone: bool) -> ConfigError:
    state = "is gone" if gone else "is another one than before"
    if name == "raw":
        hint = (
            "set routes.….table back or bring it back; for a new one take new places for table, quarantine and "
            "checkpoint, or run `spark_jobs reset --empty`: its offsets would be taken for rows that are there"
        )
    else:
        hint = (
            "set its path back or bring it back; or run `spark_jobs reset`, which parses all that raw still has again "
            "and counts rows that are there already"
        )
    return ConfigError(f"{name} table {place} {state}, but the checkpoint has parsed rows of it", hint=hint)
