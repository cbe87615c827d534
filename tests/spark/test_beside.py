"""Spark beside delta-rs on one local table, and whether one can overwrite the other's commit.

With Delta's own log store it can: look, then rename. With ours it can't, however long Spark takes to commit.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError

from ingestor.errors import RefusedError
from spark_jobs.runtime import jars, stores
from spark_jobs.runtime.session import jvm
from tests.support.process.background import Background
from tests.support.process.beside import race

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.silver import Lake


SOURCES = Path(__file__).parent / "java"


@pytest.fixture(scope="session")
def classes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pauses that are put into commits, compiled; and on the class path of the shared session."""
    javac = shutil.which("javac")
    assert javac is not None, "a JDK is needed to build the log stores, and to test them"
    folder = tmp_path_factory.mktemp("classes")
    spark_jars = Path(pyspark.__file__).parent / "jars"
    java = jvm(spark)
    store = java.java.lang.Class.forName("io.delta.storage.LogStore", True, loader(spark))
    delta = str(store.getProtectionDomain().getCodeSource().getLocation().getPath())
    path = [*spark_jars.glob("hadoop-client-api-*.jar"), delta, jars.log_store_jar()]
    sources = sorted(SOURCES.rglob("*.java"))
    subprocess.run([javac, "-d", folder, "-cp", ":".join(map(str, path)), *sources], check=True, timeout=120)
    loader(spark).addURL(java.java.io.File(str(folder)).toURI().toURL())
    return folder


def loader(spark: SparkSession) -> Any:
    return jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()


def table_with_rows(folder: Path) -> str:
    write_deltalake(str(folder), pa.table({"id": pa.array([0], pa.int64())}))
    return str(folder)


def place(spark: SparkSession, store: str, entry: Path, *, delay_ms: int) -> None:
    """Let a log store of Java's place an entry, slowly."""
    java = jvm(spark)
    conf = java.org.apache.hadoop.conf.Configuration()
    conf.set("fs.AbstractFileSystem.file.impl", "testing.SlowRename")
    conf.setLong("testing.delay.ms", delay_ms)
    made = java.java.lang.Class.forName(store, True, loader(spark)).getConstructors()[0]
    arguments = spark.sparkContext._gateway.new_array(java.java.lang.Object, 1)  # type: ignore[union-attr]
    arguments[0] = conf
    lines = java.java.util.ArrayList()
    lines.add('{"commitInfo":{"operation":"OPTIMIZE"}}')
    made.newInstance(arguments).write(java.org.apache.hadoop.fs.Path(f"file://{entry}"), lines.iterator(), False, conf)


def append_meanwhile(table: str) -> threading.Timer:
    """Append by delta-rs while Spark holds its breath."""
    rows = pa.table({"id": pa.array([1], pa.int64())})
    timer = threading.Timer(0.5, lambda: write_deltalake(table, rows, mode="append"))
    timer.start()
    return timer


@pytest.mark.usefixtures("classes")
def test_deltas_own_log_store_overwrites_an_acknowledged_append(spark: SparkSession, tmp_path: Path) -> None:
    """The finding that ours is there for; when this fails, Delta has mended it."""
    table = table_with_rows(tmp_path / "table")
    append = append_meanwhile(table)
    place(
        spark, "io.delta.storage.HDFSLogStore", tmp_path / "table/_delta_log/00000000000000000001.json", delay_ms=2000
    )
    append.join()
    assert DeltaTable(table).version() == 1
    assert DeltaTable(table).to_pyarrow_table().column("id").to_pylist() == [0]


@pytest.mark.usefixtures("classes")
def test_our_log_store_gives_way_to_an_acknowledged_append(spark: SparkSession, tmp_path: Path) -> None:
    table = table_with_rows(tmp_path / "table")
    append = append_meanwhile(table)
    entry = tmp_path / "table/_delta_log/00000000000000000001.json"
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        place(spark, "testing.SlowLocalLogStore", entry, delay_ms=2000)
    append.join()
    assert sorted(DeltaTable(table).to_pyarrow_table().column("id").to_pylist()) == [0, 1]
    assert not [path for path in entry.parent.iterdir() if path.suffix == ".tmp"]


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.timeout(400)  # it starts a Spark of its own
def test_no_acknowledged_append_is_lost_to_slow_compactions(classes: Path, tmp_path: Path) -> None:
    """Each of Spark's commits is held up right before it is placed, long enough for an append to come first."""
    conf = {"spark.delta.logStore.file.impl": "testing.SlowLocalLogStore", "spark.hadoop.testing.delay.ms": "150"}
    race(str(tmp_path / "table"), conf, str(classes))


class Watched(Background):
    """Looks at a log's checkpoints as fast as it can, and keeps the names of those that were there in part."""

    def __init__(self, log: Path) -> None:
        super().__init__(self._look)
        self._log = log
        self.seen: set[str] = set()
        self.torn: set[str] = set()

    def _look(self) -> None:
        while not self._ending.is_set():
            for checkpoint in self._log.glob("0*.checkpoint*.parquet"):
                self.seen.add(checkpoint.name)
                if checkpoint.read_bytes()[-4:] != b"PAR1":
                    self.torn.add(checkpoint.name)


def test_a_checkpoint_shows_when_it_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    """An ingestor that saw a part of one would take the log for damaged, and end."""
    table = table_with_rows(tmp_path / "table")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    with Watched(tmp_path / "table/_delta_log") as watched:
        for number in range(5):
            spark.range(number, number + 1).write.format("delta").mode("append").save(table)
    assert len(watched.seen) >= 5
    assert not watched.torn


def test_a_session_with_another_log_store_is_refused(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job asks Delta what it would use, not the settings."""
    stores.require_safe(spark, [lake.route()])
    monkeypatch.setattr(jars, "LOCAL_LOG_STORE", "another.LogStore")
    with pytest.raises(RefusedError, match=r"by ingestor\.LocalLogStore, which can overwrite"):
        stores.require_safe(spark, [lake.route()])
