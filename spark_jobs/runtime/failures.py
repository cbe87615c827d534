"""Turns errors of Spark, Delta and Java into one line with the cause and the way out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from ingestor.errors import ConfigError, DataLossError, IngestorError, OccExhaustedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.errors import PySparkException

_CHARS_MAX = 400
_ENDED = re.compile(
    r"SparkContext was shut down|stopped SparkContext|Shutdown in progress|Answer from Java side is empty"
)
_KNOWN: tuple[tuple[str, type[IngestorError], str], ...] = (
    (
        (
            r"DELTA_FILE_NOT_FOUND|FAILED_READ_FILE.FILE_NOT_EXIST|FileNotFoundException|DELTA_LOG_FILE_NOT_FOUND"
            r"|PATH_NOT_FOUND|failOnDataLoss|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_TRUNCATED_TRANSACTION_LOG"
        ),
        DataLossError,
        (
            "files or log entries are gone that were not parsed yet (by a vacuum, or a retention too short); "
            "after `spark_jobs reset` everything that is left is read again"
        ),
    ),
    (
        (
            r"AccessDenied|AccessControlException|403 Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|NoAuthWithAWS"
            r"|Permission denied|No space left|NoSuchBucket|UnknownHost|ConnectException|Connection refused"
        ),
        RefusedError,
        "check credentials, bucket, disk and address; nothing is lost, start again",
    ),
    (
        r"DELTA_CONCURRENT|ConcurrentModification|Concurrent\w+Exception|DELTA_TABLE_ALREADY_EXISTS",
        OccExhaustedError,
        "another job writes the same table; nothing is lost, start again when it is done",
    ),
    (
        r"vacuum with such a low retention|retentionDurationCheck|VACUUM_RETENTION",
        ConfigError,
        "give at least --hours 168, or the table's delta.deletedFileRetentionDuration",
    ),
    (
        r"OutOfMemoryError|GC overhead",
        IngestorError,
        "give Spark more memory: --conf spark.driver.memory=4g (or spark.executor.memory on a cluster)",
    ),
)


class JavaEndedError(IngestorError):
    """Spark's JVM has ended; this process can't continue."""


def explain(error: BaseException, *, doing: str) -> IngestorError:
    """Return an error as one of ours, with message and hint."""
    own = next((each for each in _chain(error) if isinstance(each, IngestorError)), None)
    if own is not None:
        return own
    if _java_has_ended(error):
        hint = "it was ended by a signal, or killed for its memory; nothing is lost, start again"
        return JavaEndedError(f"{doing}: Spark's Java process has ended", hint=hint)
    whole = "\n".join(f"{type(each).__name__}: {each}" for each in _chain(error))
    told = _cause(error)
    for pattern, kind, hint in _KNOWN:
        if re.search(pattern, whole):
            return kind(f"{doing}: {told}", hint=hint)
    return IngestorError(f"{doing}: {told}", hint="set log.level: DEBUG to see more; nothing is lost, start again")


def refused_by_spark(error: PySparkException, key: str) -> ConfigError:
    """Return Spark's error about an expression of the configuration."""
    return ConfigError(f"{key}: {_short(error)}", hint="correct the SQL expression")


def _java_has_ended(error: BaseException) -> bool:
    """Return whether the JVM has ended; py4j then raises connection errors."""
    chain = list(_chain(error))
    if any(isinstance(each, Py4JNetworkError) for each in chain):
        return True
    python = any(isinstance(each, ConnectionError) for each in chain)  # py4j's: only Java connects to anything else
    return python or any(_ENDED.search(str(each)) for each in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__ or at.__context__


def _cause(error: BaseException) -> str:
    """Return Java's innermost cause, otherwise the error's first line."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        while java.getCause() is not None and java.getCause() != java:
            java = java.getCause()
        return _line(f"{java.getClass().getSimpleName()}: {java.getMessage()}")
    return _short(error)


def _short(error: BaseException) -> str:
    text = str(error)
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    return _line(causes[-1] if causes else text or type(error).__name__)


def _line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first)
    return first if len(first) <= _CHARS_MAX else first[:_CHARS_MAX] + "…"
