"""The jars that Spark needs beside its own, and how it gets them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from pyspark import SparkConf

# These versions are tested together. pyproject.toml pins the same pyspark.
DELTA_VERSION = "4.4.0"
SPARK_VERSION = "4.1.1"
HADOOP_VERSION = "3.4.2"  # the first with conditional PUT, and the one that pyspark ships
_DELTA = f"io.delta:delta-spark_4.1_2.13:{DELTA_VERSION}"
_AVRO = f"org.apache.spark:spark-avro_2.13:{SPARK_VERSION}"
# The parts of Amazon's SDK that S3A uses, 18 MB. The bundle that hadoop-aws depends on has 640 MB.
_AWS_VERSION = "2.29.52"
_S3 = ",".join(
    (
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{name}:{_AWS_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
    )
)
# Spark has these; a second copy on the class path is slow or harmful.
_EXCLUDES = (
    "org.slf4j:slf4j-api",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.scala-lang:scala-library",
    "software.amazon.awssdk:bundle",
)
_PROBES = {
    _DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    _AVRO: "org.apache.spark.sql.avro.AvroDataToCatalyst",
}
_S3_PROBE = "org.apache.hadoop.fs.s3a.S3AFileSystem"
LOCAL_LOG_STORE = "ingestor.LocalLogStore"
S3_LOG_STORE = "ingestor.S3LogStore"
_LOG_STORE_JAR = Path(__file__).parent.parent / "jars" / "ingestor-logstore.jar"


def packages(*, s3: bool) -> dict[str, str]:
    """Return the settings with which Spark fetches its jars at its start."""
    wanted = [_DELTA, _AVRO, *([_S3] if s3 else [])]
    return {
        "spark.jars.packages": ",".join(wanted),
        "spark.jars.excludes": ",".join(_EXCLUDES),
        "spark.jars": str(log_store_jar()),
    }


def log_stores() -> dict[str, str]:
    """Return the settings that keep Spark from overwriting log entries (see `stores`)."""
    stores = {"file": LOCAL_LOG_STORE, "s3": S3_LOG_STORE, "s3a": S3_LOG_STORE, "s3n": S3_LOG_STORE}
    return {f"spark.delta.logStore.{scheme}.impl": name for scheme, name in stores.items()}


def log_store_jar() -> Path:
    """Return our own jar; `make` builds it, wheels contain it."""
    if not _LOG_STORE_JAR.is_file():
        msg = "the jar that lets Spark and ingestors share a table is not built"
        raise RefusedError(msg, hint="run `make setup` with a JDK (javac), or install the wheel")
    return _LOG_STORE_JAR


def add_missing(jvm: Any, conf: SparkConf, *, s3: bool) -> None:  # noqa: ANN401 - the gateway to Java
    """Add missing jars to a running Spark: to the driver's class path now, for executors by spark.jars."""
    probes = {**_PROBES, **({_S3: _S3_PROBE} if s3 else {})}
    missing = [package for package, name in probes.items() if not has(jvm, name)]
    found: list[str] = []
    if missing:
        found += _resolve(jvm, missing, conf)
    if not has(jvm, LOCAL_LOG_STORE):
        found.append(str(log_store_jar()))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for path in found:
        loader.addURL(jvm.java.io.File(path).toURI().toURL())
    if found:
        given = conf.get("spark.jars", "") or ""
        conf.set("spark.jars", ",".join([*filter(None, given.split(",")), *found]))


def add_log_stores(jvm: Any) -> None:  # noqa: ANN401 - the gateway to Java
    """Add our own jar to the driver if jars given from outside lack it; only the driver writes log entries."""
    if not has(jvm, LOCAL_LOG_STORE):
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(jvm.java.io.File(str(log_store_jar())).toURI().toURL())


def has(jvm: Any, name: str) -> bool:  # noqa: ANN401 - the gateway to Java
    """Return whether Java finds a class."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None


def _resolve(jvm: Any, missing: list[str], conf: SparkConf) -> list[str]:  # noqa: ANN401 - same
    """Fetch packages with their dependencies, as spark-submit's --packages does; return their paths."""
    tools = jvm.org.apache.spark.util.MavenUtils
    options = jvm.scala.Option
    settings = tools.buildIvySettings(
        options.apply(None), options.apply(conf.get("spark.jars.ivy", None)), True, jvm.System.err
    )
    excludes = jvm.java.util.ArrayList()
    for exclude in _EXCLUDES:
        excludes.add(exclude)
    as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala(excludes).toSeq()
    paths = tools.resolveMavenCoordinates(
        ",".join(missing), settings, options.apply(None), True, as_scala, False, jvm.System.err
    )
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(paths))
