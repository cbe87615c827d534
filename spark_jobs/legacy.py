"""Checkpoints of earlier versions, which Spark's streaming kept: where they stand, so that steps can follow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ingestor.errors import ConfigError
from spark_jobs.places import Files, TableLog
from spark_jobs.raw import Position
from spark_jobs.steps import FOLDER, Head, Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.checkpoint import Checkpoint

_RESET = "run `spark_jobs reset`: rows that are there already are then counted, not written"


def numbers(checkpoint: Checkpoint) -> list[int]:
    """Return the batches that an earlier version has begun."""
    return [int(name) for name in Files(checkpoint.session).names(f"{checkpoint.path}/offsets") if name.isdecimal()]


def head(checkpoint: Checkpoint) -> Head | None:
    """Return where an earlier version stopped; None if there is nothing of one."""
    files = Files(checkpoint.session)
    app_id = files.read(f"{checkpoint.path}/{FOLDER}/identity")
    if app_id is None:
        return None
    if not app_id.strip().startswith(checkpoint.prefix):
        what = "is empty" if not app_id.strip() else "is not one of ours"
        raise ConfigError(f"checkpoint {checkpoint.place}: its identity {what}", hint=_RESET)
    finished = _finished(checkpoint)
    position = _position(checkpoint, finished) if finished >= 0 else None
    return Head(max(numbers(checkpoint), default=-1), app_id.strip(), position)


def _position(checkpoint: Checkpoint, batch: int) -> Position:
    """Return what follows the last file of a batch, as Delta's streaming source has noted it."""
    text = Files(checkpoint.session).read(f"{checkpoint.path}/offsets/{batch}")
    try:
        noted = json.loads((text or "").splitlines()[-1])
        version, index, first = int(noted["reservoirVersion"]), int(noted["index"]), bool(noted["isStartingVersion"])
    except (IndexError, ValueError, KeyError, TypeError):
        msg = f"checkpoint {checkpoint.place}: offsets/{batch} is {'damaged' if text else 'empty or gone'}"
        raise ConfigError(msg, hint=_RESET) from None
    if first:
        msg = f"checkpoint {checkpoint.place}: an earlier version has not ended its first parse"
        raise ConfigError(msg, hint=f"let that version end it; or {_RESET}")
    return Position(version, max(index + 1, 0))


def tables(checkpoint: Checkpoint, head: Head, places: Mapping[str, str]) -> Tables:
    """Return which tables an earlier version's batches are in; refuse a batch that is written by half.

    It has noted no ids, so a table that is there is taken for its own.
    """
    finished = _finished(checkpoint)
    found: dict[str, str | None] = {}
    for name, place in places.items():
        log = TableLog(checkpoint.session, place)
        if head.number > finished and log.exists and log.txn(head.app_id) == head.number:
            msg = f"batch {head.number} in {place} was begun by an earlier version, and not ended"
            raise ConfigError(msg, hint=f"let that version end it; or {_RESET}")
        found[name] = None if finished < 0 else log.table_id or "gone"
    return Tables(None, found["silver"], found["quarantine"])


def _finished(checkpoint: Checkpoint) -> int:
    names = Files(checkpoint.session).names(f"{checkpoint.path}/commits")
    return max((int(name) for name in names if name.isdecimal()), default=-1)
