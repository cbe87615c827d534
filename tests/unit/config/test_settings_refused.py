from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from ingestor.config.load import check
from ingestor.errors import ConfigError
from tests.support.settings import FILE, document, refusal, two_routes, with_kafka, without


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
        (document(memory="31MiB"), 'memory: "31MiB" must be at least 32MiB'),
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
        (document(routes__events__topics=["^a("]), "is not a valid regex"),
        (document(routes__events__topics=["^[a--b]"]), "is not a valid regex"),
        (document(routes__events__topics=["^a\\d"]), "librdkafka reads differently"),
        (document(routes__events__topics=["^a(?!b)"]), "librdkafka reads differently"),
        (document(routes__events__topics=["^a[[:digit:]]"]), "librdkafka reads differently"),
        (document(routes__events__table=""), "is not a path"),
        (document(routes__events__table="s3:/a"), "is neither a path nor a URL"),
        (document(routes__events__table="s3:///a"), "names no bucket"),
        (document(routes__events__table="s3://[a"), "is not a URL"),
        (document(routes__events__table="~/a"), "only a shell expands"),
        (document(routes__events__table="memory://a"), "is lost when the process ends"),
        (document(routes__events__table="file://host/a"), "names no local file"),
        (document(routes__events__table="lake/a%41b"), "routes.events.table:"),
        (document(routes__events__table="lake/a%41b"), "where delta-rs takes %41 for another character"),
        (document(routes__events__table="file:///lake/a%2541b"), "means /lake/a%41b"),
        (document(parse__events__quarantine="lake/100%25"), "parse.events.quarantine:"),
        (document(routes__events__start="now"), 'routes.events.start: "now" is not a time'),
        (document(routes__events__start=5), "is not a time"),
        (document(routes__events__start="2026-01-31"), "has no time zone"),
        (document(routes__events__start=datetime(2026, 1, 31).date()), "has no time zone"),  # noqa: DTZ001
        (document(routes__events__start=datetime(2026, 1, 31)), "has no time zone"),  # noqa: DTZ001
        (document(routes__events__start="1969-12-31T00:00:00Z"), "before 1970"),
        (document(routes__events__start="0001-01-01T00:00:00+09:00"), "is not a time"),
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
        (document(routes__events__flush__seconds=float("nan")), "flush.seconds: NaN is not a duration"),
        (document(routes__events__flush__seconds=True), "flush.seconds: true is not a duration"),
        (document(routes__events__flush__seconds="5 minutes"), 'flush.seconds: "5 minutes" is not a duration'),
        (document(routes__events__flush__seconds="8d"), "must be at most 604800"),
        (document(routes__events__flush=5), "routes.events.flush: 5 is not a mapping"),
        (document(routes__events__occ__base_seconds=11), "base_seconds 11 is more than"),
        (document(routes__events__retry__base_seconds=31), "base_seconds 31 is more than"),
        (document(routes__events__retry__jitter=2), "retry.jitter: 2 must be at most 1"),
        (document(routes__events__retry__max_retries=-1), "max_retries: -1 must be at least 0"),
        (document(routes__events__compression="brotli"), '"brotli" is not a compression'),
        (document(routes__events__compression="zstd:23"), "is not a compression"),
        (document(routes__events__compression="snappy:1"), "is not a compression"),
        (document(routes__events=None), "routes.events: null is not a mapping"),
        ({**document(), "routes": {"a b": {}}}, "routes.a b: "),
        (document(breaker__failures=0), "breaker.failures: 0 must be at least 1"),
        (document(http__port=65_536), "http.port: 65536 must be at most 65535"),
        (document(http__port=True), "http.port: true is not a number"),
        (document(log__level="LOUD"), 'log.level: "LOUD" is not one of the choices'),
        (document(log__format="xml"), 'log.format: "xml" is not one of the choices'),
        (document(parse__other={}), "parse.other: is not a route"),
        (document(parse__events__formats=[]), "parse.events.formats: [] is empty"),
        (document(parse__events__formats=["xml"]), "is not one of the choices"),
        (document(parse__events__csv__delimiter=",,"), "delimiter: "),
        (document(parse__events__csv={"delimiter": "\n"}), "has a line break as delimiter"),
        (document(parse__events__csv={"quote": ","}), "has the same character as delimiter and quote"),
        (document(parse__events__csv={"escape": ","}), "has the same character as delimiter and escape"),
        (document(parse__events__csv={"quote": None, "escape": "/"}), "has an escape but no quote"),
        (document(parse__events={"formats": ["json"], "csv": {"header": True}}), "a csv.header but no csv"),
        (document(parse__events__timestamps={"at": "nanos"}), "is not one of the choices"),
        (document(parse__events={"strict": False, "timestamps": {"at": "iso"}}), "which strict: false ignores"),
        (document(parse__events__cob={"field": "a", "column": "stream_offset"}), "silver has"),
        (document(parse__events__rules={"a;b": "x"}), "does not have the right form"),
        (document(parse__events__schema_registry="host"), "does not have the right form"),
        (
            document(parse__events={"schema_registry": "http://r", "formats": ["json"]}),
            "a schema_registry but no avro",
        ),
        (document(parse__events__dedupe={"by": 5}), "dedupe.by: 5 names no fields"),
        (document(parse__events__dedupe={"by": []}), "dedupe.by: [] names no fields"),
        (document(parse__events__dedupe={"by": ["a"], "within": "often"}), 'within: "often" is not a duration'),
        (document(parse__events__dedupe={"by": ["a"], "within": 0}), "within: 0:00:00 must be more than 0"),
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
        document(routes__events__table="s3://AKIA:hunter2@bucket/lake"),
        document(routes__events__table="s3://AKIA:hun/hunter2@bucket/lake"),
        document(routes__events__table="s3://hunter2@bucket/lake"),
        document(parse__events={"table": "s3://AKIA:hunter2@bucket/silver"}),
        document(parse__events={"table": "abfss://box:hunter2@account.dfs.core.windows.net/silver"}),
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
        (document(parse__events__table="lake/events"), "is the location of routes.events.table too"),
        (
            document(parse__events={"table": "a", "quarantine": "a"}),
            "parse.events.quarantine: is the location of parse.events.table too",
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
