"""Builds the Spark session.

`python -m spark_jobs` starts a local Spark, which fetches its jars. Under `spark-submit` the submitted Spark is used,
and missing jars are fetched into it. Settings from outside (spark-defaults.conf, PYSPARK_SUBMIT_ARGS, spark-submit's
options, `--conf`) win over those set here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingestor.errors import ConfigError, RefusedError
from spark_jobs.runtime import jars

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

JAVA_MAJOR_MIN = 17
_JVM_ENDS_SECONDS_MAX = 30.0
_AVRO_LIMIT_BYTES = 1 << 26  # bytes that are no Avro may decode to a huge length, which must not be allocated
_JAVA_OPTIONS = " ".join(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={_AVRO_LIMIT_BYTES}" for kind in ("string", "bytes", "collectionItems")
)
# A batch's data is large and long-lived, so G1, Java's default, spends much CPU on concurrent marking.
_COLLECTOR = "-XX:+UseParallelGC"
_COLLECTOR_CHOSEN = re.compile(r"-XX:\+Use\w+GC\b")
_TOLD_TO_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# These decide about results, so they are not left to a cluster's defaults.
_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a bad record must not end the job
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.caseSensitive": "false",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",  # would read fewer fields and miss bad ones
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.json.enablePartialResults": "false",  # a record is read completely or not at all
    "spark.sql.variant.allowDuplicateKeys": "false",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Tables for every Delta reader and writer: no table feature by a cluster's defaults.
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "none",
    "spark.databricks.delta.properties.defaults.enableRowTracking": "false",
    "spark.databricks.delta.properties.defaults.minReaderVersion": "1",
    "spark.databricks.delta.properties.defaults.minWriterVersion": "2",
}
_EXTENSIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_FASTER = {
    "spark.sql.codegen.hugeMethodLimit": "8000",  # the JVM does not compile larger methods; Spark splits them
    "spark.sql.codegen.cache.maxEntries": "500",  # a batch has more classes than Spark's default of 100
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # costs three more calls to Java per column expression
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # batches are cached for seconds only
    # By default rows for a partitioned table are always sorted; with this only in tasks with more partitions than this.
    # Each open writer keeps its data in memory, so the number is low.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}
_QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.debug.maxToStringFields": "200",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the Python that it starts


def local_defaults(cores: int) -> dict[str, str]:
    """Return defaults for one machine; Spark's own are for a cluster."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
    }


def start(settings: Mapping[str, str], *, s3: bool, quiet: bool = True) -> SparkSession:
    """Return the session with the caller's settings; ConfigError or RefusedError if Spark can't start."""
    submitted = _SUBMITTED in os.environ
    if not submitted:
        _require_java()
    with _jvm_log(quiet=quiet and not submitted) as log:
        try:
            conf = _submitted_conf(s3=s3) if submitted else _own_conf(settings, s3=s3)
            for key, value in {**_FIXED, **settings}.items():
                conf.set(key, value)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
            jars.add_log_stores(jvm(session))
        except (PySparkException, RuntimeError, OSError, ValueError) as error:
            raise _not_started(error, log) from error
        except Exception as error:  # py4j's errors are plain Exceptions
            raise _not_started(error, log) from error
    session.sparkContext.setLogLevel("ERROR" if quiet else "WARN")
    return session


def _own_conf(settings: Mapping[str, str], *, s3: bool) -> SparkConf:
    """Return the configuration of a Spark that is started here, without keys that are set outside."""
    outside = _outside()
    conf = SparkConf(loadDefaults=False)
    wanted = {**local_defaults(os.cpu_count() or 1), **_EXTENSIONS, **_FASTER, **_QUIET, **jars.log_stores()}
    wanted["spark.driver.extraJavaOptions"] = wanted["spark.executor.extraJavaOptions"] = _JAVA_OPTIONS
    if not _collector_chosen(outside | settings.keys()):
        wanted["spark.driver.extraJavaOptions"] += f" {_COLLECTOR}"
    if not any(key in outside or key in settings for key in ("spark.jars", "spark.jars.packages")):
        wanted |= jars.packages(s3=s3)
    for key, value in wanted.items():
        if key not in outside:
            conf.set(key, value)
    return conf


def _collector_chosen(keys: Collection[str]) -> bool:
    """Return whether a garbage collector may be set outside: Java does not start with two."""
    told = " ".join(os.environ.get(name, "") for name in _TOLD_TO_JAVA)
    return "spark.driver.defaultJavaOptions" in keys or _COLLECTOR_CHOSEN.search(told) is not None


def _submitted_conf(*, s3: bool) -> SparkConf:
    """Return spark-submit's configuration, with the keys that Delta needs and it lacks."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to spark-submit's JVM; no public way
    conf = SparkConf(_jvm=SparkContext._jvm)  # noqa: SLF001 - same
    for key, value in {**_EXTENSIONS, **_FASTER, **_QUIET, **jars.log_stores()}.items():
        if not conf.contains(key):
            conf.set(key, value)
    if str(conf.get("spark.master", "")).startswith("local"):
        for key, value in local_defaults(os.cpu_count() or 1).items():
            if not conf.contains(key) and key != "spark.driver.memory":
                conf.set(key, value)
    if not conf.contains("spark.executor.extraJavaOptions"):
        conf.set("spark.executor.extraJavaOptions", _JAVA_OPTIONS)
    jars.add_missing(SparkContext._jvm, conf, s3=s3)  # noqa: SLF001 - same
    return conf


def _outside() -> set[str]:
    """Return the keys that spark-defaults.conf and PYSPARK_SUBMIT_ARGS set."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    keys = set(re.findall(r"--conf[ =]['\"]?(spark\.[\w.]+)", arguments))
    for option, key in (("--jars", "spark.jars"), ("--packages", "spark.jars.packages"), ("--master", "spark.master")):
        if option in arguments:
            keys.add(key)
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    defaults = Path(folder or os.devnull) / "spark-defaults.conf"
    if folder and defaults.is_file():
        keys |= set(re.findall(r"^\s*(spark\.[\w.]+)", defaults.read_text(), re.MULTILINE))
    return keys


def _require_java() -> None:
    """Refuse a missing or old Java; Spark's own message does not name it."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "in PATH"
        raise ConfigError(f"no java {where}", hint=f"install Java {JAVA_MAJOR_MIN} or newer, or set JAVA_HOME")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr  # noqa: S603
    match = re.search(r'version "(\d+)', told)
    if match is None or int(match[1]) < JAVA_MAJOR_MIN:
        found = match[1] if match else "of an unknown version"
        raise ConfigError(f"{java} is Java {found}", hint=f"Spark needs Java {JAVA_MAJOR_MIN} or newer; set JAVA_HOME")


@contextlib.contextmanager
def _jvm_log(*, quiet: bool) -> Iterator[IO[bytes] | None]:
    """Send the JVM's stderr to a temporary file, which is only read for the reason why Spark did not start.

    The JVM inherits stderr when it starts, and Ivy alone writes a hundred lines.
    """
    if not quiet:
        yield None
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield log
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


_TELLING = re.compile(r"(?:unresolved dependency: .+|Server access error.*|[\w.$]*(?:Exception|Error): .+)")


def _not_started(error: BaseException, log: IO[bytes] | None) -> Exception:
    told = ""
    if log is not None:
        log.seek(0)
        found = _TELLING.findall(log.read().decode(errors="replace"))
        told = f": {found[-1].strip()}" if found else ""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    hint = "see that jars can be fetched (or give spark.jars), and that the master answers; log.level: DEBUG shows more"
    return (
        error
        if isinstance(error, RefusedError | ConfigError)
        else RefusedError(f"Spark did not start: {first}{told}", hint=hint)
    )


def stop(session: SparkSession) -> None:
    """Stop Spark, and wait for the JVM if it is ours, since it removes its temporary folders at its end."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - no public way
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)  # None under spark-submit
    try:
        session.stop()
        if process is not None:
            gateway.shutdown()
    finally:
        if process is not None and process.stdin is not None:
            process.stdin.close()  # this ends the JVM
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_JVM_ENDS_SECONDS_MAX)
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the next session starts its own JVM


def jvm(session: SparkSession) -> Any:  # noqa: ANN401 - Java's own objects
    """Return the gateway to Java."""
    return session.sparkContext._jvm  # noqa: SLF001 - no public way


def java_class(session: SparkSession, name: str) -> Any:  # noqa: ANN401 - same
    """Return a class by its full name; with attribute access per part, Java searches every jar for each part."""
    return getattr(jvm(session), name)
