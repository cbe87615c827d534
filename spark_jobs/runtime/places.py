"""Access to tables and checkpoints by Hadoop's file systems: disks, HDFS and object stores alike."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from spark_jobs.runtime.session import java_class, jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_S3 = re.compile(r"^s3n?://")
_NEWEST = 20  # entries to read before asking Delta's snapshot
_ENTRY = re.compile(r"^(\d{20})\.json$")


def spark_path(place: str) -> str:
    """Return a path or URL for Spark, whose only S3 file system is s3a."""
    return _S3.sub("s3a://", place)


def on_s3(place: str) -> bool:
    """Return whether a path or URL is on S3."""
    return spark_path(place).startswith("s3a://")


class Files:
    """Reads and writes small files by Hadoop's file systems."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._path = java_class(session, "org.apache.hadoop.fs.Path")
        self._conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no public way

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._path(path)
        return place.getFileSystem(self._conf), place

    def read(self, path: str) -> str | None:
        """Return a small text file's content, None if there is no file."""
        files, place = self._at(path)
        if not files.exists(place):
            return None
        stream = files.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        """Create a small text file, atomic and synced; return False if it exists. Of two writers one wins."""
        try:
            self._place(path, text, overwrite=False)
        except Py4JJavaError as error:
            if str(error.java_exception.getClass().getName()).endswith("FileAlreadyExistsException"):
                return False
            raise
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a small text file atomically, replacing an existing one."""
        self._place(path, text, overwrite=True)

    def _place(self, path: str, text: str, *, overwrite: bool) -> None:
        """Write as Delta writes log entries: by the store's own way to let one writer win."""
        files, place = self._at(path)
        files.mkdirs(place.getParent())
        place = files.makeQualified(place)
        stores = java_class(self._session, "org.apache.spark.sql.delta.storage.DelegatingLogStore")
        lines = jvm(self._session).java.util.ArrayList()
        lines.add(text)
        stores(self._conf).getDelegate(place).logStoreImpl().write(place, lines.iterator(), overwrite, self._conf)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if it does not exist."""
        files, place = self._at(folder)
        if not files.exists(place):
            return []
        return [status.getPath().getName() for status in files.listStatus(place)]

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content."""
        files, place = self._at(path)
        files.delete(place, True)


@dataclass(frozen=True, slots=True)
class Commit:
    """The commitInfo and txns of a log entry."""

    version: int
    info: Mapping[str, Any]
    txns: Mapping[str, int]
    mark: Mapping[str, Any]  # `userMetadata`, as one of our jobs wrote it

    @property
    def rows(self) -> int:
        """The number of rows that the commit wrote, by Delta's metrics."""
        return int(self.info.get("operationMetrics", {}).get("numOutputRows", 0))


class TableLog:
    """A Delta table's log: Delta's snapshot, and the newest entries."""

    def __init__(self, session: SparkSession, table: str) -> None:
        self._session = session
        self._files = Files(session)
        self._table = spark_path(table)

    def snapshot(self) -> Any:  # noqa: ANN401 - Delta's own object
        """Return Delta's snapshot of the newest version; its version is -1 if there is no table."""
        log = java_class(self._session, "org.apache.spark.sql.delta.DeltaLog")
        return log.forTableWithSnapshot(self._session._jsparkSession, self._table)._2()  # noqa: SLF001 - no public way

    @property
    def version(self) -> int:
        """The newest version, -1 if there is no table."""
        return int(self.snapshot().version())

    @property
    def exists(self) -> bool:
        """Return whether there is a table."""
        return self.version >= 0

    @property
    def table_id(self) -> str | None:
        """Return the table's id, which a table recreated at this path would not have; None if there is no table."""
        snapshot = self.snapshot()
        return str(snapshot.metadata().id()) if int(snapshot.version()) >= 0 else None

    def at(self, version: int) -> DataFrame:
        """Return the rows of one version, which stay the same however often Spark evaluates them."""
        return self._session.read.format("delta").option("versionAsOf", version).load(self._table)

    def entry(self, version: int) -> str | None:
        """Return a log entry's text, None if it was removed."""
        return self._files.read(f"{self._table}/_delta_log/{version:020d}.json")

    def txn(self, app_id: str) -> int | None:
        """Return the version of an application's txn, None if it has none.

        The newest entries usually have it. Delta's snapshot always does, but takes a Spark job.
        """
        for number, commit in enumerate(self.commits()):
            if app_id in commit.txns:
                return commit.txns[app_id]
            if commit.version == 0:
                return None
            if number == _NEWEST:
                break
        found = self._transactions().get(app_id)
        return int(found.get()) if found.isDefined() else None

    def txn_ids(self, prefix: str) -> list[str]:
        """Return the application ids with this prefix."""
        keys = self._transactions().keysIterator()
        found = []
        while keys.hasNext():
            key = str(keys.next())
            if key.startswith(prefix):
                found.append(key)
        return found

    def _transactions(self) -> Any:  # noqa: ANN401 - Scala's map
        return self.snapshot().transactions()

    def commits(self) -> Iterator[Commit]:
        """Yield the existing entries, newest first."""
        version = self.version
        while version >= 0:
            text = self.entry(version)
            if text is None:
                return
            yield _commit(version, text)
            version -= 1


def _commit(version: int, text: str) -> Commit:
    info: dict[str, Any] = {}
    txns: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith('{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
        elif line.startswith('{"txn"'):
            txn = json.loads(line)["txn"]
            txns[txn["appId"]] = txn["version"]
    try:
        mark = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        mark = {}
    return Commit(version, info, txns, mark if isinstance(mark, dict) else {})


def is_entry(name: str) -> int | None:
    """Return the version of a log entry's file name, None for other files of `_delta_log`."""
    match = _ENTRY.match(name)
    return int(match[1]) if match else None
