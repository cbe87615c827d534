"""Stores for Spark: their options, and the check that no log entry can be overwritten.

The ingestor (by delta-rs) and Spark append to one table, and each log entry must have one winner. Delta's own log
stores check that an entry does not exist and then write it, which overwrites one written in between
(tests/spark/test_beside.py shows it). So Spark must use our log stores; a job refuses to start without them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ingestor.errors import RefusedError
from spark_jobs.runtime import jars
from spark_jobs.runtime.places import Files, on_s3, spark_path
from spark_jobs.runtime.session import java_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from ingestor.config.settings import ParseSettings, Settings
    from spark_jobs.plan.route import Route

_PROBE = "_ingestor_probe"
_S3A = "spark.hadoop.fs.s3a."
_FROM_OPTIONS = {
    "endpoint_url": "endpoint",
    "endpoint": "endpoint",
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}


def any_s3(settings: Settings, names: Iterable[str]) -> bool:
    """Return whether a table or checkpoint of these routes is on S3."""
    return any(on_s3(place) for name in names for place in _places(settings.routes[name].table, settings.parse[name]))


def _places(raw: str, parse: ParseSettings) -> tuple[str, ...]:
    return (raw, parse.table, parse.quarantine, parse.checkpoint)


def options(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Return `storage_options` as settings of Spark's S3 client."""
    if not any_s3(settings, names):
        return {}
    found: dict[str, str] = {}
    for key, value in settings.storage_options.items():
        name = key.lower().removeprefix("aws_")
        if name in _FROM_OPTIONS:
            found[_S3A + _FROM_OPTIONS[name]] = value
        elif name == "allow_http" and value.lower() in ("true", "1"):
            found[f"{_S3A}connection.ssl.enabled"] = "false"
        elif name == "virtual_hosted_style_request":
            found[f"{_S3A}path.style.access"] = "false" if value.lower() == "true" else "true"
    if f"{_S3A}endpoint" in found:
        found.setdefault(f"{_S3A}path.style.access", "true")
    return found


def require_safe(session: SparkSession, routes: Sequence[Route]) -> None:
    """Refuse a session or a store with which commits could overwrite others."""
    seen: set[str] = set()
    for place in (place for route in routes for place in _places(route.raw, route.settings)):
        path = spark_path(place)
        scheme = path.partition("://")[0] if "://" in path else "file"
        if scheme == "file":
            _require_store(session, path, scheme, jars.LOCAL_LOG_STORE)
        elif scheme == "s3a":
            _require_store(session, path, scheme, jars.S3_LOG_STORE)
            bucket = path.split("/")[2]
            if bucket not in seen:
                seen.add(bucket)
                _probe(session, path)


def _require_store(session: SparkSession, path: str, scheme: str, wanted: str) -> None:
    """Refuse another log store than ours; Delta is asked for the one that it really uses."""
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no public way
    place = java_class(session, "org.apache.hadoop.fs.Path")(f"{scheme}:///" if scheme == "file" else path)
    try:
        stores = java_class(session, "org.apache.spark.sql.delta.storage.DelegatingLogStore")
        name = _class_name(stores(conf).getDelegate(place))
    except Exception as error:  # noqa: BLE001 - after any failure it is not ours
        name = f"none ({type(error).__name__})"
    if name != wanted:
        key = f"spark.delta.logStore.{scheme}.impl"
        msg = f"Spark writes log entries of {scheme} tables by {name}, which can overwrite an ingestor's commits"
        raise RefusedError(msg, hint=f"set {key}={wanted}, with our jar in spark.jars, or leave both to the job")


def _class_name(store: Any) -> str:  # noqa: ANN401 - Java's own
    name = str(store.getClass().getName())
    if name.endswith("LogStoreAdaptor"):
        return str(store.logStoreImpl().getClass().getName())
    return name


def _probe(session: SparkSession, path: str) -> None:
    """Write one small object twice with a condition: a store that accepts the second ignores the condition."""
    conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no public way
    target = f"{path.rstrip('/')}/{_PROBE}/{uuid.uuid4().hex}/00000000000000000000.json"
    place = java_class(session, "org.apache.hadoop.fs.Path")(target)
    store = java_class(session, "ingestor.S3LogStore")(conf)
    try:
        store.probe(place, conf)
    except Exception as error:
        msg = f"the store of {path} has no conditional PUT: it let one object overwrite another"
        raise RefusedError(msg, hint="use a store, or a version of it, that honours If-None-Match") from error
    finally:
        Files(session).remove(target)
