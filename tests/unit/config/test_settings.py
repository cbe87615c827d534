from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ingestor.config.load import check, load
from ingestor.config.types import duration
from ingestor.records import RawSchema
from tests.support.settings import FILE, checked, with_kafka

if TYPE_CHECKING:
    from pathlib import Path


def test_defaults_are_those_of_the_readme() -> None:
    settings = checked()
    route = settings.routes["events"]

    assert settings.txn_app_id == "{app_id}/{topic}/{partition}"
    assert settings.storage_options == {}
    assert settings.memory == 256 * 1024**2
    assert settings.parse == {}
    assert route.start == "earliest"
    assert route.on_data_loss == "fail"
    assert route.extra_columns == ()
    assert route.partition_by == ()
    assert route.flush.model_dump() == {"rows": 1_000_000, "bytes": 128 * 1024**2, "seconds": 60}
    assert route.occ.model_dump() == {"max_retries": 100, "base_seconds": 0.1, "max_seconds": 10}
    assert route.retry.model_dump() == {
        "max_retries": 3,
        "base_seconds": 1,
        "max_seconds": 30,
        "jitter": 0.25,
    }
    assert route.compression == "zstd"
    assert settings.breaker.model_dump() == {"failures": 5, "open_seconds": 60, "successes": 3}
    assert settings.http is not None
    assert settings.http.model_dump() == {"host": "127.0.0.1", "port": 8080}
    assert settings.log.model_dump() == {"format": "console", "level": "INFO"}
    assert settings.dead_letters.model_dump() == {"topic": "{topic}-dlq", "format": "headers", "create": True}


def test_the_example_of_the_readme_loads(tmp_path: Path) -> None:
    file = tmp_path / "ingestor.yaml"
    file.write_text(
        """
app_id: orders
txn_app_id: "{app_id}/{topic}/{partition}"
kafka:
  bootstrap.servers: ${KAFKA_BOOTSTRAP_SERVERS:-127.0.0.1:9092}
  group.id: orders
storage_options: {}
memory: 256MiB
routes:
  user-events:
    topics: [user.events.v1]
    table: ./lake/raw/user-events
    start: earliest
    on_data_loss: fail
    extra_columns: []
    partition_by: []
    flush: {rows: 1000000, bytes: 128MiB, seconds: 60}
    occ: {max_retries: 100, base_seconds: 0.1, max_seconds: 10}
    retry: {max_retries: 3, base_seconds: 1, max_seconds: 30, jitter: 0.25}
    compression: zstd
breaker: {failures: 5, open_seconds: 60, successes: 3}
http: {host: 127.0.0.1, port: 8080}
log: {format: console, level: INFO}
dead_letters: {topic: "{topic}-dlq", format: headers}
parse:
  user-events: {}
""",
    )

    settings = load(file, environ={})

    assert settings.routes["user-events"].name == "user-events"
    assert settings.routes["user-events"].table == str(tmp_path / "lake/raw/user-events")
    assert settings.kafka["bootstrap.servers"] == "127.0.0.1:9092"


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        checked().app_id = "other"  # type: ignore[misc]


def test_neither_repr_nor_str_show_what_goes_to_kafka_and_storage() -> None:
    changed = with_kafka(sasl_password="hunter2") | {"storage_options": {"aws_secret": "s3cr3t"}}

    settings = check(changed, FILE, {})

    assert settings.kafka["sasl.password"] == "hunter2"
    for text in (repr(settings), str(settings)):
        assert "hunter2" not in text
        assert "s3cr3t" not in text


def test_values_for_kafka_and_storage_become_text() -> None:
    changed = with_kafka(a=True, b=False, c=5, d=0.5) | {"storage_options": {"retries": 3}}

    settings = check(changed, FILE, {})

    assert [settings.kafka[name] for name in "abcd"] == ["true", "false", "5", "0.5"]
    assert settings.storage_options == {"retries": "3"}


def test_numbers_may_come_as_text_from_the_environment() -> None:
    settings = checked(http__port="9", breaker__open_seconds="1.5", memory="64MiB")

    assert settings.http is not None
    assert settings.http.port == 9
    assert settings.breaker.open_seconds == 1.5
    assert settings.memory == 64 * 1024**2


def test_http_can_be_switched_off() -> None:
    assert checked(http=None).http is None


def test_log_level_is_taken_in_any_case() -> None:
    assert checked(log__level="debug").log.level == "DEBUG"


@pytest.mark.parametrize(
    ("written", "table"),
    [
        ("lake/a", "/etc/orders/lake/a"),
        ("../a/", "/etc/a"),
        ("/lake/a", "/lake/a"),
        ("file:///lake/a%20b", "/lake/a b"),
        ("s3://bucket/a/", "s3://bucket/a"),
        (
            "abfss://box@account.dfs.core.windows.net/a",
            "abfss://box@account.dfs.core.windows.net/a",
        ),
    ],
)
def test_a_table_is_a_url_or_an_absolute_path(written: str, table: str) -> None:
    assert checked(routes__events__table=written).routes["events"].table == table


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("latest", "latest"),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_start_is_a_word_or_a_moment(written: object, start: object) -> None:
    assert checked(routes__events__start=written).routes["events"].start == start


@pytest.mark.parametrize("written", ["zstd:3", "zstd:22", "gzip:9", "snappy", "lz4", "none"])
def test_compression_is_a_codec_and_perhaps_a_level(written: str) -> None:
    assert checked(routes__events__compression=written).routes["events"].compression == written


def test_uncompressed_is_called_none_as_in_pyarrow() -> None:
    assert checked(routes__events__compression="uncompressed").routes["events"].compression == "none"


def test_a_route_with_a_regex_takes_what_begins_like_it() -> None:
    route = checked(routes__events__topics=["^events\\.v[0-9]+"]).routes["events"]

    assert route.is_regex
    assert route.matches("events.v1")
    assert route.matches("events.v1-old")  # as in librdkafka
    assert not route.matches("other.events.v1")


def test_a_route_with_names_takes_just_those() -> None:
    settings = checked(routes__events__topics=["a.b", "c"])

    assert not settings.routes["events"].is_regex
    assert settings.route_of("c") is settings.routes["events"]
    assert settings.route_of("aXb") is None


def test_a_route_knows_its_columns_in_their_fixed_order() -> None:
    route = checked(
        routes__events__extra_columns=["headers", "key"],
        routes__events__partition_by=["ingest_date"],
    ).routes["events"]

    assert route.schema == RawSchema(("key", "headers"), partitioned=True)


def test_what_is_fixed_anyway_may_be_written() -> None:
    check(
        with_kafka(
            enable_auto_commit=False,
            enable_auto_offset_store="false",
            isolation_level="read_committed",
            auto_offset_reset="error",
            enable_partition_eof=True,
        )
        | {"storage_options": {"AWS_S3_ALLOW_UNSAFE_RENAME": "false", "conditional_put": "etag"}},
        FILE,
        {},
    )


def test_parse_places_lie_beside_the_raw_table_unless_named() -> None:
    parse = checked(parse__events={"quarantine": "bad"}).parse["events"]

    assert parse.table == "/etc/orders/lake/events-silver"
    assert parse.quarantine == "/etc/orders/bad"
    assert parse.checkpoint == "/etc/orders/lake/events-checkpoint"


def test_parse_may_be_left_empty() -> None:
    assert checked(parse__events=None).parse["events"].formats == ("json", "csv", "avro")
    assert checked(parse=None, storage_options=None).parse == {}


def test_all_of_a_parse_section_is_read() -> None:
    parse = checked(
        parse__events={
            "table": "s3://lake/silver",
            "quarantine": "s3://lake/bad",
            "checkpoint": "s3://lake/silver/_checkpoints",
            "formats": ["json", "csv"],
            "schema": "schemas/events.avsc",
            "csv": {
                "columns": ["user_id", "cob"],
                "delimiter": ";",
                "header": True,
                "quote": "'",
                "escape": "\\",
                "null": "-",
            },
            "timestamps": {"created_at": "millis", "order.paid_at": "seconds"},
            "cob": {"field": "cob", "column": "cob_date"},
            "required": ["user_id"],
            "rules": {"positive_amount": "amount >= 0"},
            "processing_version": "2.0",
            "dedupe": {"by": ["request_id"], "within": "7d"},
            "partition_by": ["cob_date"],
            "tombstones": "quarantine",
        },
    ).parse["events"]

    assert parse.schema_file == "/etc/orders/schemas/events.avsc"
    assert parse.schema_ddl is None
    assert parse.cob is not None
    assert parse.dedupe is not None
    assert parse.dedupe.by == ("request_id",)
    assert parse.dedupe.within == timedelta(days=7)
    assert (parse.strict, parse.timestamps["order.paid_at"]) == (True, "seconds")
    assert (parse.csv.header, parse.csv.quote, parse.csv.escape, parse.csv.null) == (True, "'", "\\", "-")


def test_a_schema_may_be_ddl_and_duplicates_may_be_found_by_content() -> None:
    parse = checked(parse__events={"schema": "user_id string, n int", "dedupe": {"by": "content"}}).parse["events"]

    assert (parse.schema_file, parse.schema_ddl) == (None, "user_id string, n int")
    assert parse.dedupe is not None
    assert (parse.dedupe.by, parse.dedupe.within) == ("content", timedelta(hours=24))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("24h", 86_400), (" 7 d ", 604_800), ("500ms", 0.5), ("1.5h", 5400), ("5", 5)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "1w", "9999999999h", "1e3", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        duration(text)


@pytest.mark.parametrize(("written", "seconds"), [("5m", 300), ("500ms", 0.5), ("90", 90), (90, 90), (0.1, 0.1)])
def test_all_durations_are_written_in_one_way(written: object, seconds: float) -> None:
    settings = checked(
        routes__events__flush={"seconds": written},
        routes__events__occ={"base_seconds": written, "max_seconds": written},
        breaker__open_seconds=written,
        parse__events__dedupe={"by": "content", "within": written},
    )

    route, dedupe = settings.routes["events"], settings.parse["events"].dedupe
    assert route.flush.seconds == route.occ.base_seconds == route.occ.max_seconds == seconds
    assert settings.breaker.open_seconds == seconds
    assert dedupe is not None
    assert dedupe.within == timedelta(seconds=seconds)


def test_dead_letters_have_a_topic_per_topic() -> None:
    assert checked().dead_letters.topic_for("events") == "events-dlq"
    assert checked(dead_letters__topic="trash").dead_letters.topic_for("events") == "trash"
