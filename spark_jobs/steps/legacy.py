"""Checkpoints of earlier versions, which Spark's streaming kept: where they stand, so that steps can follow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.errors import ConfigError
from spark_jobs.runtime.places import Files, TableLog, spark_path
from spark_jobs.steps.raw import Position
from spark_jobs.steps.steps import FOLDER, Head, Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_RESET = "run `spark_jobs reset`: rows that are there already are then counted, not written"


@dataclass(frozen=True, slots=True)
class Legacy:
    """What Spark's streaming left in a checkpoint."""

    session: SparkSession
    place: str
    prefix: str

    @property
    def _path(self) -> str:
        return spark_path(self.place)

    def numbers(self) -> list[int]:
        """Return the batches that an earlier version has begun."""
        return [int(name) for name in Files(self.session).names(f"{self._path}/offsets") if name.isdecimal()]

    def head(self) -> Head | None:
        """Return where an earlier version stopped; None if there is nothing of one."""
        files = Files(self.session)
        app_id = files.read(f"{self._path}/{FOLDER}/identity")
        if app_id is None:
            return None
        if not app_id.strip().startswith(self.prefix):
            what = "is empty" if not app_id.strip() else "is not one of ours"
            raise ConfigError(f"checkpoint {self.place}: its identity {what}", hint=_RESET)
        finished = self._finished()
        position = self._position(finished) if finished >= 0 else None
        return Head(max(self.numbers(), default=-1), app_id.strip(), position)

    def _position(self, batch: int) -> Position:
        """Return what follows the last file of a batch, as Delta's streaming source has noted it."""
        text = Files(self.session).read(f"{self._path}/offsets/{batch}")
        try:
            noted = json.loads((text or "").splitlines()[-1])
            version, index, first = (
                int(noted["reservoirVersion"]),
                int(noted["index"]),
                bool(noted["isStartingVersion"]),
            )
        except (IndexError, ValueError, KeyError, TypeError):
            msg = f"checkpoint {self.place}: offsets/{batch} is {'damaged' if text else 'empty or gone'}"
            raise ConfigError(msg, hint=_RESET) from None
        if first:
            msg = f"checkpoint {self.place}: an earlier version has not ended its first parse"
            raise ConfigError(msg, hint=f"let that version end it; or {_RESET}")
        return Position(version, max(index + 1, 0))

    def tables(self, head: Head, places: Mapping[str, str]) -> Tables:
        """Return which tables an earlier version's batches are in; refuse a batch that is written by half.

        It has noted no ids, so a table that is there is taken for its own.
        """
        finished = self._finished()
        found: dict[str, str | None] = {}
        for name, place in places.items():
            log = TableLog(self.session, place)
            if head.number > finished and log.exists and log.txn(head.app_id) == head.number:
                msg = f"batch {head.number} in {place} was begun by an earlier version, and not ended"
                raise ConfigError(msg, hint=f"let that version end it; or {_RESET}")
            found[name] = None if finished < 0 else log.table_id or "gone"
        return Tables(None, found["silver"], found["quarantine"])

    def _finished(self) -> int:
        names = Files(self.session).names(f"{self._path}/commits")
        return max((int(name) for name in names if name.isdecimal()), default=-1)
