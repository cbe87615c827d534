"""Records in Confluent's wire format, with the schemas of a registry that answers by HTTP on loopback."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from ingestor.errors import RefusedError
from spark_jobs.parse import parse
from spark_jobs.reparse import reparse
from spark_jobs.rows.balance import Balance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.silver import Lake

OPTIONAL = {"type": ["null", "string"], "default": None}
OURS: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "user_id", **OPTIONAL}, {"name": "colour", **OPTIONAL}],
}
OLDER: dict[str, Any] = {"type": "record", "name": "Older", "fields": [{"name": "user_id", "type": "string"}]}
NEWER: dict[str, Any] = {
    "type": "record",
    "name": "Newer",
    "namespace": "shop",
    "fields": [
        {"name": "size", "type": "int"},
        {"name": "colour", "type": "string"},
        {"name": "user_id", "type": "string"},
    ],
}


class Registry:
    """A registry with these schemas."""

    def __init__(self) -> None:
        self.schemas: dict[int, Any] = {1: OLDER, 2: NEWER}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                number = int(self.path.partition("?")[0].rpartition("/")[2])
                found = registry.schemas.get(number)
                body = {"schema": json.dumps(found)} if found else {"error_code": 40403, "message": "Schema not found"}
                answer = json.dumps(body).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    serving = Registry()
    yield serving
    serving.close()


def wired(number: int, schema: dict[str, Any], **record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def settings(lake: Lake, url: str) -> dict[str, Any]:
    (lake.folder / "event.avsc").write_text(json.dumps(OURS))
    return {"schema": "event.avsc", "schema_registry": url}


def test_each_record_is_read_by_the_schema_that_it_names(spark: SparkSession, lake: Lake, registry: Registry) -> None:
    """Fields in another order, too many or too few; an id that the registry does not know is malformed."""
    lake.land(
        wired(1, OLDER, user_id="u1"),
        wired(2, NEWER, size=3, colour="red", user_id="u2"),
        wired(9, OLDER, user_id="u3"),
        wired(1, OLDER, user_id="u4") + b"x",
        b'{"user_id": "u5"}',
    )
    parse_as = settings(lake, registry.url)
    assert parse(spark, lake.route(**parse_as)) == Balance(raw=5, silver=3, quarantine=2)
    assert lake.silver("stream_offset", "user_id", "colour") == [(0, "u1", None), (1, "u2", "red"), (4, "u5", None)]
    assert lake.quarantine("stream_offset", "error_reason") == [(2, "malformed"), (3, "malformed")]
    registry.schemas[9] = OLDER
    assert reparse(spark, lake.route(**parse_as)) == Balance(raw=2, silver=1, quarantine=1)
    assert lake.silver("stream_offset") == [0, 1, 2, 4]


def test_a_registry_that_is_away_ends_the_job_with_nothing_written(spark: SparkSession, lake: Lake) -> None:
    lake.land(wired(1, OLDER, user_id="u1"))
    with pytest.raises(RefusedError, match=r"schema registry at 127\.0\.0\.1 can't be reached"):
        parse(spark, lake.route(**settings(lake, "http://127.0.0.1:1")))
    assert lake.silver() == lake.quarantine() == []
