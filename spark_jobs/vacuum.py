"""`vacuum`: removes files that no version within the retention needs, unless `parse` still has to read them.

`parse` reads the files that were appended, not those that compaction has rewritten them to. So a file that compaction
removed from the table may still be unparsed, and silver would lose its rows if a vacuum deleted it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.errors import DataLossError
from spark_jobs.runtime import failures
from spark_jobs.runtime.places import Files, TableLog, is_entry, spark_path
from spark_jobs.runtime.session import java_class
from spark_jobs.steps.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.plan.route import Route

_HOUR_MS = 3_600_000
_SHOWN_MAX = 1_000  # Delta's own limit of a dry run
_ACTIONS = "add STRUCT<path: STRING, dataChange: BOOLEAN>, remove STRUCT<path: STRING, deletionTimestamp: BIGINT>"
_PARSE_FIRST = "run `spark_jobs parse` to its end first, or keep removed files for longer"


@dataclass(frozen=True, slots=True)
class Removal:
    """What a vacuum removes, or would."""

    table: str
    files: tuple[str, ...]
    done: bool

    @property
    def line(self) -> str:
        """Return the removal as text."""
        count = f"{len(self.files):,}" + ("+" if len(self.files) >= _SHOWN_MAX else "")
        return f"{self.table}: {count} files {'removed' if self.done else 'would go (--delete removes them)'}"


def vacuum(session: SparkSession, route: Route, *, hours: int, delete: bool) -> list[Removal]:
    """Vacuum a route's raw and silver tables; a dry run unless `delete`."""
    try:
        _refuse_unparsed(session, route, hours)
        tables = [route.raw, route.settings.table]
        return [_one(session, each, hours, delete=delete) for each in tables if TableLog(session, each).exists]
    except Exception as error:
        raise failures.explain(error, doing=f"route {route.name}, vacuum") from error


def _one(session: SparkSession, table: str, hours: int, *, delete: bool) -> Removal:
    command = f"VACUUM delta.`{spark_path(table)}` RETAIN {hours} HOURS"
    doomed = tuple(row[0] for row in session.sql(f"{command} DRY RUN").collect())
    if delete and doomed:
        session.sql(command).collect()
    return Removal(table, doomed, done=delete)


def _refuse_unparsed(session: SparkSession, route: Route, hours: int) -> None:
    """Refuse if a file that is not parsed yet is old enough to be deleted."""
    log = TableLog(session, route.raw)
    begin = _unread(Checkpoint.of(session, route), route) if log.exists else None
    if begin is None:
        return  # a first parse begins with the live files
    entries = _entries_since(session, route, begin)
    added = entries.where("add IS NOT NULL AND coalesce(add.dataChange, true)").select("add.path")
    cutoff = int(time.time() * 1000) - min(hours * _HOUR_MS, _retention_ms(session, log))
    gone = entries.where(f"remove IS NOT NULL AND coalesce(remove.deletionTimestamp, 0) <= {cutoff}")
    doomed = added.join(gone.select("remove.path"), "path", "left_semi").distinct().count()
    if doomed:
        msg = f"route {route.name}: {doomed:,} files of {route.raw} hold rows that are not parsed yet, and would go"
        raise DataLossError(msg, hint=_PARSE_FIRST)


def _retention_ms(session: SparkSession, log: TableLog) -> int:
    """Return the table's own retention of removed files; Delta uses it if it is shorter."""
    delta = java_class(session, "org.apache.spark.sql.delta.DeltaLog")
    return int(delta.tombstoneRetentionMillis(log.snapshot().metadata()))


def _unread(checkpoint: Checkpoint, route: Route) -> int | None:
    """Return the first version that is not parsed yet; refuse while the first parse reads the initial files."""
    head = checkpoint.head()
    if head is None or (head.position is None and (head.open is None or head.open.kind == "reset")):
        return None
    if head.position is None or head.position.snapshot:
        msg = f"route {route.name}: the first parse has not ended, and may need any file of {route.raw}"
        raise DataLossError(msg, hint=_PARSE_FIRST)
    return head.position.version


def _entries_since(session: SparkSession, route: Route, version: int) -> DataFrame:
    """Return the log's entries from a version on; refuse if some of them are gone."""
    folder = f"{spark_path(route.raw)}/_delta_log"
    versions = sorted(v for v in map(is_entry, Files(session).names(folder)) if v is not None and v >= version)
    if len(versions) < TableLog(session, route.raw).version - version + 1:
        msg = f"route {route.name}: log entries of {route.raw} from version {version} on are gone, but not parsed yet"
        raise DataLossError(msg, hint="nothing may be removed; `spark_jobs reset` reads the table from its start")
    if not versions:
        return session.createDataFrame([], _ACTIONS)
    return session.read.schema(_ACTIONS).json([f"{folder}/{each:020d}.json" for each in versions])
