from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ingestor.errors import ConfigError
from ingestor.records import RawSchema
from ingestor.settings import Settings, check, load
from ingestor.settings_types import duration

FILE = Path("/etc/orders/ingestor.yaml")
MINIMAL: dict[str, Any] = {
    "app_id": "orders",
    "kafka": {"bootstrap.servers": "kafka:9092", "group.id": "orders"},
    "routes": {"events": {"topics": ["events"], "table": "lake/events"}},
}


def document(**changes: Any) -> dict[str, Any]:
    """Return a small configuration with changes: `routes__events__start=…` reaches inside."""
    changed = copy.deepcopy(MINIMAL)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        section = changed
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return changed


def checked(**changes: Any) -> Settings:
    return check(document(**changes), FILE, {})


def refusal(changed: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(changed, FILE, {})
    assert caught.value.message.startswith(f"{FILE}: ")
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None  # pydantic's error would quote secrets in a traceback
    return caught.value


def with_kafka(**options: Any) -> dict[str, Any]:
    changed = document()
    changed["kafka"] |= {name.replace("_", "."): value for name, value in options.items()}
    return changed


def two_routes(**other: Any) -> dict[str, Any]:
    return document(routes__other={"topics": ["other"], "table": "lake/other"} | other)


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
    assert (route.compression, route.codec, route.compression_level) == ("zstd", "zstd", None)
    assert settings.breaker.model_dump() == {"failures": 5, "open_seconds": 60, "successes": 3}
    assert settings.http is not None
    assert settings.http.model_dump() == {"host": "127.0.0.1", "port": 8080}
    assert settings.log.model_dump() == {"format": "console", "level": "INFO"}
    assert settings.dead_letters.model_dump() == {"topic": "{topic}-dlq", "format": "headers"}


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


@pytest.mark.parametrize(
    ("written", "codec", "level"),
    [
        ("zstd:3", "zstd", 3),
        ("gzip:9", "gzip", 9),
        ("snappy", "snappy", None),
        ("lz4", "lz4", None),
        ("none", "none", None),
        ("uncompressed", "none", None),
    ],
)
def test_compression_is_a_codec_and_perhaps_a_level(written: str, codec: str, level: int | None) -> None:
    route = checked(routes__events__compression=written).routes["events"]

    assert (route.codec, route.compression_level) == (codec, level)


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
            "csv": {"columns": ["user_id", "cob"], "delimiter": ";"},
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


def test_a_schema_may_be_ddl_and_duplicates_may_be_found_by_content() -> None:
    parse = checked(parse__events={"schema": "user_id string, n int", "dedupe": {"by": "content"}}).parse["events"]

    assert (parse.schema_file, parse.schema_ddl) == (None, "user_id string, n int")
    assert parse.dedupe is not None
    assert (parse.dedupe.by, parse.dedupe.within) == ("content", timedelta(hours=24))


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86_400), (" 7 d ", 604_800)])
def test_a_duration_has_a_unit(text: str, seconds: int) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1.5h", "1w", "9999999999h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        duration(text)


def test_dead_letters_have_a_topic_per_topic() -> None:
    assert checked().dead_letters.topic_for("events") == "events-dlq"
    assert checked(dead_letters__topic="trash").dead_letters.topic_for("events") == "trash"


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in document().items() if key != name}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (without("app_id"), "app_id: is missing"),
        (without("kafka"), "kafka: is missing"),
        (without("routes"), "routes: is missing"),
        (document(routes={}), "routes: is empty"),
        (document(app_id=5), "app_id: 5 is not text"),
        (document(app_id=" "), 'app_id: " " is empty'),
        (document(app_id="a\nb"), r'app_id: "a\nb" is empty or not printable'),
        (document(kafka=None), "kafka.bootstrap.servers: is missing"),
        (document(kafka__x=[1]), "kafka.x: is not text"),
        (document(kafka__x=None), "kafka.x: is not text"),
        (with_kafka(session_timeout_ms="long"), "kafka.session.timeout.ms: is not a whole number"),
        (with_kafka(max_poll_interval_ms=0), "kafka.max.poll.interval.ms: is not a whole number"),
        (document(memory="31MiB"), 'memory: "31MiB" must be at least 33554432'),
        (document(memory="lots"), 'memory: "lots" is not a size'),
        (document(memory=[1]), "memory: [1] is not a size"),
        (document(memory="9" * 99), "is not a size"),
        (document(routes__events__topics="a"), 'routes.events.topics: "a" is not a list'),
        (document(routes__events__topics=[]), "routes.events.topics: [] is empty"),
        (document(routes__events__topics=["a", "a"]), "names something twice"),
        (document(routes__events__topics=["a b"]), "no Kafka topic can have"),
        (document(routes__events__topics=[".."]), "no Kafka topic can have"),
        (document(routes__events__topics=["x" * 250]), "no Kafka topic can have"),
        (document(routes__events__topics=["^a", "b"]), "mixes a regex with other topics"),
        (document(routes__events__topics=["^a("]), "is no valid regex"),
        (document(routes__events__topics=["^[a--b]"]), "is no valid regex"),
        (document(routes__events__topics=["^a\\d"]), "librdkafka reads differently"),
        (document(routes__events__topics=["^a(?!b)"]), "librdkafka reads differently"),
        (document(routes__events__topics=["^a[[:digit:]]"]), "librdkafka reads differently"),
        (document(routes__events__table=""), "is no path"),
        (document(routes__events__table="s3:/a"), "is neither a path nor a URL"),
        (document(routes__events__table="s3:///a"), "names no bucket"),
        (document(routes__events__table="s3://[a"), "is no URL"),
        (document(routes__events__table="~/a"), "only a shell understands"),
        (document(routes__events__table="memory://a"), "ends with the process"),
        (document(routes__events__table="file://host/a"), "names no local file"),
        (document(routes__events__start="now"), 'routes.events.start: "now" is no time'),
        (document(routes__events__start=5), "is no time"),
        (document(routes__events__start="2026-01-31"), "has no time zone"),
        (document(routes__events__start=datetime(2026, 1, 31).date()), "has no time zone"),  # noqa: DTZ001
        (document(routes__events__start=datetime(2026, 1, 31)), "has no time zone"),  # noqa: DTZ001
        (document(routes__events__start="1969-12-31T00:00:00Z"), "before 1970"),
        (document(routes__events__start="0001-01-01T00:00:00+09:00"), "is no time"),
        (document(routes__events__on_data_loss="ignore"), "is not one of the choices"),
        (document(routes__events__extra_columns=["payload"]), "is not one of the choices"),
        (document(routes__events__extra_columns=["key", "key"]), "names something twice"),
        (document(routes__events__partition_by=["stream_topic"]), "is not one of the choices"),
        (document(routes__events__flush__rows=0), "routes.events.flush.rows: 0 must be at least 1"),
        (document(routes__events__flush__rows=True), "flush.rows: true is not a number"),
        (document(routes__events__flush__rows=[1]), "flush.rows: [1] is not a whole number"),
        (document(routes__events__flush__rows="abc"), 'flush.rows: "abc" is not a whole number'),
        (document(routes__events__flush__rows=1.5), "flush.rows: 1.5 is not a whole number"),
        (document(routes__events__flush__bytes=0), "flush.bytes: 0 must be more than 0"),
        (document(routes__events__flush__bytes=-1), "flush.bytes: -1 is not a size"),
        (document(routes__events__flush__seconds=0), "flush.seconds: 0 must be more than 0"),
        (document(routes__events__flush__seconds=float("nan")), "is not a number"),
        (document(routes__events__flush=5), "routes.events.flush: 5 is not a mapping"),
        (document(routes__events__occ__base_seconds=11), "base_seconds 11 is more than"),
        (document(routes__events__retry__base_seconds=31), "base_seconds 31 is more than"),
        (document(routes__events__retry__jitter=2), "retry.jitter: 2 must be at most 1"),
        (document(routes__events__retry__max_retries=-1), "max_retries: -1 must be at least 0"),
        (document(routes__events__compression="brotli"), '"brotli" is no compression'),
        (document(routes__events__compression="zstd:23"), "is no compression"),
        (document(routes__events__compression="snappy:1"), "is no compression"),
        (document(routes__events=None), "routes.events: null is not a mapping"),
        ({**document(), "routes": {"a b": {}}}, "routes.a b: "),
        (document(breaker__failures=0), "breaker.failures: 0 must be at least 1"),
        (document(http__port=65_536), "http.port: 65536 must be at most 65535"),
        (document(http__port=True), "http.port: true is not a number"),
        (document(log__level="LOUD"), 'log.level: "LOUD" is not one of the choices'),
        (document(log__format="xml"), 'log.format: "xml" is not one of the choices'),
        (document(parse__other={}), "parse.other: is no route"),
        (document(parse__events__formats=[]), "parse.events.formats: [] is empty"),
        (document(parse__events__formats=["xml"]), "is not one of the choices"),
        (document(parse__events__csv__delimiter=",,"), "delimiter: "),
        (document(parse__events__cob={"field": "a", "column": "stream_offset"}), "silver has"),
        (document(parse__events__rules={"a;b": "x"}), "is not of the right form"),
        (document(parse__events__schema_registry="host"), "is not of the right form"),
        (
            document(parse__events={"schema_registry": "http://r", "formats": ["json"]}),
            "a schema_registry but no avro",
        ),
        (document(parse__events__dedupe={"by": 5}), "dedupe.by: 5 names no fields"),
        (document(parse__events__dedupe={"by": []}), "dedupe.by: [] names no fields"),
        (document(parse__events__dedupe={"by": ["a"], "within": 3}), "within: 3 is no duration"),
        (document(parse__events__processing_version=1.0), "processing_version: 1.0 is not text"),
    ],
)
def test_a_wrong_value_is_refused_by_key_and_value(changed: dict[str, Any], says: str) -> None:
    assert says in refusal(changed).message


@pytest.mark.parametrize(
    ("changed", "key", "hint"),
    [
        (document(mmory="1GiB"), "mmory", "did you mean memory?"),
        (document(routes__events__flush__row=1), "routes.events.flush.row", "did you mean rows?"),
        (document(http__prt=1), "http.prt", "did you mean port?"),
        (document(parse__events__shema="x"), "parse.events.shema", "did you mean schema?"),
        (document(routes__events__name="x"), "routes.events.name", "known here: topics, table,"),
        (document(parse__events__csv__quux=1), "parse.events.csv.quux", "columns, delimiter"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(changed: dict[str, Any], key: str, hint: str) -> None:
    error = refusal(changed)

    assert f"{key}: unknown key" in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", True),
        ("enable.auto.commit", "TRUE"),
        ("auto.commit.enable", "true"),
        ("enable.auto.offset.store", True),
        ("isolation.level", "read_uncommitted"),
        ("auto.offset.reset", "earliest"),
        ("enable.partition.eof", False),
        ("error_cb", "f"),
        ("on_commit", "f"),
        ("logger", "f"),
    ],
)
def test_kafka_options_that_break_the_guarantee_are_refused(name: str, value: object) -> None:
    changed = document()
    changed["kafka"][name] = value

    assert f"kafka.{name}: " in refusal(changed).message


@pytest.mark.parametrize("name", ["bootstrap.servers", "group.id"])
@pytest.mark.parametrize("value", ["", " ", None])
def test_kafka_options_that_are_needed_are_missed(name: str, value: str | None) -> None:
    changed = document()
    del changed["kafka"][name]
    if value is not None:
        changed["kafka"][name] = value

    assert f"kafka.{name}: is missing" in refusal(changed).message


@pytest.mark.parametrize(
    "options",
    [
        {"allow_unsafe_rename": True},
        {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"},
        {"MOUNT_ALLOW_UNSAFE_RENAME": 1},
        {"conditional_put": "disabled"},
        {"AWS_CONDITIONAL_PUT": "None"},
    ],
)
def test_storage_options_that_let_commits_overwrite_each_other_are_refused(
    options: dict[str, object],
) -> None:
    error = refusal(document(storage_options=options))

    assert f"storage_options.{next(iter(options))}: " in error.message


def test_the_environment_can_not_switch_the_guarantee_off_either() -> None:
    with pytest.raises(ConfigError, match="environment variable AWS_S3_ALLOW_UNSAFE_RENAME"):
        check(document(), FILE, {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})


@pytest.mark.parametrize(
    "changed",
    [
        document(kafka={"sasl.password": ["hunter2"], "enable.auto.commit": "hunter2"}),
        document(kafka="hunter2"),
        document(storage_options={"secret": {"a": "hunter2"}}),
        document(storage_options=["hunter2"]),
        {**document(), "sasl.password": "hunter2"},
        with_kafka(queued_max_messages_kbytes="hunter2"),
        document(parse__events__schema_registry="ftp://me:hunter2@host"),
    ],
)
def test_a_refusal_never_shows_a_secret(changed: dict[str, Any]) -> None:
    assert "hunter2" not in str(refusal(changed))


def test_all_problems_are_named_the_first_one_first() -> None:
    error = refusal(document(app_id=5, memory="x", routes__events__start="now", http__prt=1))

    positions = [error.message.index(key) for key in ("app_id", "memory", "start", "http.prt")]
    assert positions == sorted(positions)
    assert "memory: write bytes" in error.hint


def test_a_long_value_is_cut_short() -> None:
    assert len(refusal(document(routes__events__start="x" * 10_000)).message) < 300


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (two_routes(topics=["events"]), "topic events belongs to route events too"),
        (two_routes(topics=["^ev"]), "topic events belongs to route events too"),
        (
            {
                **document(),
                "routes": {
                    "a": {"topics": ["^x.*"], "table": "a"},
                    "b": {"topics": ["^x.*"], "table": "b"},
                },
            },
            "topic ^x.* belongs to route a too",
        ),
        (
            two_routes(table="./lake/../lake/events/", extra_columns=["key"]),
            "routes.other: has the table of route events, but other extra_columns",
        ),
        (
            two_routes(table="lake/events", partition_by=["ingest_date"]),
            "routes.other: has the table of route events, but other extra_columns",
        ),
        (
            {**two_routes(table="lake/events"), "txn_app_id": "{app_id}-{partition}"},
            "the routes events and other can't share a table",
        ),
        (two_routes(table="lake/events/inner"), "routes.other.table: overlaps with"),
        (document(txn_app_id="{app_id}{partition}"), "needs a separator"),
        (document(txn_app_id="{app_id}/{date}"), "unknown placeholder"),
        (
            document(txn_app_id="{app_id}-{partition}", routes__events__topics=["a", "b"]),
            "has no {topic}",
        ),
        (
            document(txn_app_id="{app_id}-{partition}", routes__events__topics=["^a"]),
            "has no {topic}",
        ),
        (
            with_kafka(queued_max_messages_kbytes=262_144),
            "kafka.queued.max.messages.kbytes: is not less than memory",
        ),
        (document(dead_letters__topic="{topic}"), "events is a source topic of route events"),
        (document(dead_letters__topic="events"), "events is a source topic of route events"),
        (document(dead_letters__topic="{topic}/dlq"), "makes no legal topic name"),
        (document(dead_letters__topic="{table}"), "makes no legal topic name"),
        (document(routes__events__topics=["x" * 248]), "is too long for a topic"),
        (
            document(routes__events__topics=["^ev"], parse__events={}),
            "the regex of route events matches its own dead letters",
        ),
        (
            document(routes__events__topics=["^ev.*$"], parse__events={}),
            "the regex of route events matches its own dead letters",
        ),
        (
            document(routes__events__topics=["^ev"], dead_letters__topic="evil"),
            "the regex of route events matches its own dead letters",
        ),
        (document(parse__events__table="lake/events"), "is the place of routes.events.table too"),
        (
            document(parse__events={"table": "a", "quarantine": "a"}),
            "parse.events.quarantine: is the place of parse.events.table too",
        ),
        (document(parse__events__table="lake"), "overlaps with routes.events.table"),
        (
            document(parse__events__checkpoint="lake/events/_delta_log/x"),
            "overlaps with routes.events.table",
        ),
    ],
)
def test_a_contradiction_is_refused(changed: dict[str, Any], says: str) -> None:
    assert says in refusal(changed).message


@pytest.mark.parametrize(
    "changed",
    [
        two_routes(table="lake/events"),
        two_routes(topics=["^other"]),
        document(txn_app_id="{app_id}-{partition}"),
        document(routes__events__topics=["^ev\\.v[0-9]+$"], parse__events={}),
        document(routes__events__topics=["^ev"]),
        document(routes__events__topics=["^ev"], parse__events={}, dead_letters__topic="dlq.{topic}"),
        with_kafka(queued_max_messages_kbytes=65_536),
        document(parse__events__checkpoint="lake/events/_checkpoints/x"),
    ],
)
def test_what_only_looks_like_a_contradiction_is_allowed(changed: dict[str, Any]) -> None:
    check(changed, FILE, {})


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.datetimes()
    | st.dates()
    | st.text(max_size=20)
    | st.sampled_from(["^a", "a", "{topic}", "s3://a/b", "zstd:3", "24h", "content", "1e400", "9MiB"])
)
NAMES = st.text(max_size=5) | st.sampled_from(
    [
        *Settings.model_fields,
        *("topics", "table", "start", "flush", "rows", "bytes", "seconds", "occ", "retry", "by"),
        *("base_seconds", "max_seconds", "compression", "dedupe", "within", "csv", "cob", "field"),
        *("host", "port", "level", "format", "topic", "schema", "formats", "events", "rules"),
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PATHS = st.sampled_from(
    [
        *((name,) for name in Settings.model_fields),
        *(("routes", "events", name) for name in ("topics", "table", "start", "flush", "occ")),
        *(("routes", "events", name) for name in ("retry", "compression", "extra_columns")),
        *(("parse", "events", name) for name in ("schema", "dedupe", "csv", "cob", "formats")),
        *(("http", "port"), ("log", "level"), ("dead_letters", "topic"), ("kafka", "x")),
    ]
)


def loads_or_is_refused(changed: dict[str, Any]) -> None:
    try:
        check(changed, FILE, {})
    except ConfigError as error:
        assert "\n" not in error.message  # noqa: PT017 - loading is fine too


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_document_loads_or_is_refused(changed: dict[str, Any]) -> None:
    loads_or_is_refused(changed)


@given(st.lists(st.tuples(PATHS, VALUES), min_size=1, max_size=3))
def test_any_value_anywhere_loads_or_is_refused(
    changes: list[tuple[tuple[str, ...], object]],
) -> None:
    changed = document(parse__events={}, http={}, log={}, dead_letters={})
    for (*parents, last), value in changes:
        section: Any = changed
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section[last] = value
    loads_or_is_refused(changed)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_file_loads_or_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = tmp_path / "ingestor.yaml"
    file.write_text(yaml.safe_dump(document() | changed), encoding="utf-8")

    try:
        load(file, {})
    except ConfigError as error:
        assert error.exit_code == 2  # noqa: PT017 - loading is fine too
