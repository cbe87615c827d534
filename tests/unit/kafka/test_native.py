"""The native intake: the same records, events and nulls as confluent_kafka's own messages, and nothing left behind."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, cimpl
from confluent_kafka import TopicPartition as KafkaTopicPartition

from ingestor import logs
from ingestor.ingest.buffer import select
from ingestor.kafka import extract
from ingestor.kafka.intake import MessageIntake
from ingestor.kafka.native import build, library
from ingestor.kafka.native import intake as native_intake
from ingestor.kafka.native.intake import NativeIntake
from ingestor.kafka.native.taken import as_text
from ingestor.records import EXTRA_COLUMNS, RawSchema, TopicPartition
from tests.support.process.server import free_ports

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ingestor.kafka.intake import Event, Intake, TakenIn
    from ingestor.records import Columns

pytestmark = pytest.mark.skipif(library.load()[0] is None, reason=f"no native intake: {library.load()[1]}")

ROOT = Path(__file__).resolve().parents[3]
FULL = RawSchema(EXTRA_COLUMNS)
PARTITIONS = 4  # of every topic of the mock cluster
SECONDS_MAX = 20.0


class Kafka:
    """A cluster inside this process (librdkafka's mock), and consumers of it."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "linger.ms": 5, "log_level": 0})
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._opened: list[tuple[Intake, Consumer]] = []

    def send(self, topic: str, value: bytes | None, **more: Any) -> None:
        """Send a record, to partition 0 unless told otherwise."""
        self.producer.produce(topic, value, **{"partition": 0, **more})

    def read(self, kind: str, topics: Collection[str], extras: Collection[str] = EXTRA_COLUMNS) -> Intake:
        """Return an intake that reads all partitions of topics from their heads."""
        assert self.producer.flush(SECONDS_MAX) == 0
        options = {"bootstrap.servers": self.bootstrap, "group.id": "g", "enable.partition.eof": True}
        options |= {"enable.auto.commit": False, "auto.offset.reset": "error"}
        options |= {"fetch.wait.max.ms": 10, "topic.metadata.propagation.max.ms": 100}  # nobody should have to wait
        native = library.load()[0]
        assert native is not None
        consumer = Consumer(library.with_plugin(options) if kind == "native" else options)
        intake: Intake = MessageIntake(consumer, extras, None)
        if kind == "native":
            intake = NativeIntake(native, consumer, extras)
        tps = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        intake.expect(tps)
        consumer.assign([KafkaTopicPartition(*tp, 0) for tp in tps])
        self._opened.append((intake, consumer))
        return intake

    @property
    def consumer(self) -> Consumer:
        """The consumer that was opened last."""
        return self._opened[-1][1]

    def close(self) -> None:
        """Close all that is open, each within a time: librdkafka itself would wait for ever."""
        while self._opened:
            intake, consumer = self._opened.pop()
            intake.close()
            close(consumer)

    def let_go(self) -> Consumer:
        """Return the consumer that was opened last, and hold neither it nor its intake any more."""
        return self._opened.pop()[1]


def close(consumer: Consumer) -> None:
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(SECONDS_MAX)
    assert not closing.is_alive(), "librdkafka waits for something that was not given back"


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    cluster = Kafka()
    yield cluster
    cluster.close()


def to_ends(intake: Intake, count: int, *, at_once: int = 1_000) -> tuple[list[Columns], list[Event]]:
    """Return what comes until so many partitions have been read to their ends."""
    came: list[Columns] = []
    events: list[Event] = []
    deadline = time.monotonic() + SECONDS_MAX
    while sum(event.error.code() == KafkaError._PARTITION_EOF for event in events) < count:
        assert time.monotonic() < deadline
        taken = intake.take(at_once, 0.1)
        came += taken.columns
        events += taken.events
    return came, events


def rows(came: list[Columns], schema: RawSchema = FULL) -> list[dict[str, Any]]:
    """Return the rows that columns make in a table, in the order of their coordinates."""
    found: list[dict[str, Any]] = []
    for columns in came:
        positions = {TopicPartition(topic, number): 0 for topic in columns.topics for number in range(PARTITIONS)}
        batch = select(columns, positions, schema).batch
        assert batch is not None
        batch.records.validate(full=True)
        assert batch.records.schema.equals(schema.file) or batch.records.column("stream_topic").type != pa.string()
        found += batch.records.to_pylist()
    return sorted(found, key=lambda row: (row["stream_topic"], row["stream_partition"], row["stream_offset"]))


def send_everything(kafka: Kafka, topic: str) -> int:
    """Send whatever a record may hold; return how many."""
    kinds: list[dict[str, Any]] = [
        {"value": b"plain"},
        {"value": None},
        {"value": b""},
        {"value": bytes(range(256))},
        {"value": b"keyed", "key": b"k\x00\xff"},
        {"value": None, "key": b""},
        {"value": b"h", "headers": [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b""), ("zero", b"\x00\xff")]},
        {"value": b"no headers", "headers": []},
        {"value": b"umlaut", "headers": [("schlüssel", b"wert")]},
        {"value": b"old", "timestamp": 1},
        {"value": b"late", "timestamp": 253_402_300_799_000},
        {"value": b"x" * 300_000},
    ]
    sent = 0
    for number in range(len(kinds) * 10):
        kind = dict(kinds[number % len(kinds)])
        kafka.send(topic, kind.pop("value"), partition=number // 7 % PARTITIONS, **kind)
        sent += 1
    return sent


def test_both_intakes_give_the_same_rows(kafka: Kafka) -> None:
    """Of several topics: nulls, bytes that are no text, repeated headers, every timestamp."""
    sent = send_everything(kafka, "a") + send_everything(kafka, "b")
    found = {}
    for kind in ("native", "messages"):
        came, events = to_ends(kafka.read(kind, ["a", "b"]), 2 * PARTITIONS)
        assert Counter(event.error.code() for event in events) == {KafkaError._PARTITION_EOF: 2 * PARTITIONS}
        found[kind] = rows(came), {(event.tp, event.offset) for event in events}
    assert len(found["native"][0]) == sent
    assert found["native"] == found["messages"]


@pytest.mark.parametrize("extras", [(), ("key",), ("headers",), ("timestamp_type",)])
def test_only_what_is_wanted_is_taken(kafka: Kafka, extras: tuple[str, ...]) -> None:
    """And beside it all that every record has."""
    sent = send_everything(kafka, "a")
    schema = RawSchema(extras)
    came, _ = to_ends(kafka.read("native", ["a"], extras), PARTITIONS)
    for columns in came:
        wanted = columns.keys, columns.headers, columns.timestamp_types
        assert [extra is not None for extra in wanted] == [name in extras for name in EXTRA_COLUMNS]
    told = rows(came, schema)
    assert len(told) == sent
    assert told == rows(to_ends(kafka.read("messages", ["a"], extras), PARTITIONS)[0], schema)


@pytest.mark.parametrize("batch_bytes", [1, 1_000, 400_000])
def test_one_poll_brings_all_in_kafkas_order(kafka: Kafka, monkeypatch: pytest.MonkeyPatch, batch_bytes: int) -> None:
    """However little one brings, and however large its records are."""
    sent = send_everything(kafka, "a")
    monkeypatch.setattr(native_intake, "_BYTES_MAX", batch_bytes)
    came, _ = to_ends(kafka.read("native", ["a"]), PARTITIONS)
    assert (len(came) > sent // 4) == (batch_bytes == 1)
    seen: dict[int, list[int]] = {}
    for columns in came:
        for partition, offset in zip(columns.partitions.tolist(), columns.offsets.tolist(), strict=True):
            seen.setdefault(partition, []).append(offset)
    assert sum(map(len, seen.values())) == sent
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


@pytest.mark.parametrize("batch_bytes", [1, 10_000, 25_000, 1_000_000])
def test_one_poll_brings_so_many_bytes_at_the_most(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """Of records that are alike, not one more than is needed."""
    for _ in range(200):
        kafka.send("a", b"x" * 10_000)
    monkeypatch.setattr(native_intake, "_BYTES_MAX", batch_bytes)
    came, _ = to_ends(kafka.read("native", ["a"]), PARTITIONS)
    assert sum(map(len, came)) == 200
    assert max(map(len, came)) <= max(1, -(-batch_bytes // 10_000))


def test_hardly_more_is_read_than_fits(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit waits for the next batch in memory that nobody counts."""
    for _ in range(200):
        kafka.send("a", b"x" * 10_000)
    monkeypatch.setattr(native_intake, "_BYTES_MAX", 50_000)
    intake: Any = kafka.read("native", ["a"])
    take, waiting = intake._take_batch, []

    def counting(taken: TakenIn, rest: Any, *arguments: int) -> None:
        take(taken, rest, *arguments)
        waiting.append(rest.left)

    monkeypatch.setattr(intake, "_take_batch", counting)
    came, _ = to_ends(intake, PARTITIONS)
    assert sum(map(len, came)) == 200
    assert max(waiting) <= 5


@pytest.mark.parametrize("kind", ["native", "messages"])
@pytest.mark.parametrize("part", ["value", "key", "headers"])
def test_records_much_larger_than_those_before_come_in_batches_that_are_bounded(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, kind: str, part: str
) -> None:
    """Many are read at once by the size of the last ones; one batch of all could outgrow Arrow's 32-bit offsets."""
    many: dict[str, Any] = {"value": {"value": b"x" * 10_000}, "key": {"key": b"x" * 10_000}}
    many["headers"] = {"headers": [("name", b"x" * 10_000)]}
    for number in range(400):
        kafka.send("a", **{"value": b"%d" % number, **(many[part] if number >= 300 else {})})
    monkeypatch.setattr(native_intake, "_BYTES_MAX", 50_000)
    monkeypatch.setattr(extract, "PORTION_BYTES", 50_000)
    intake = kafka.read(kind, ["a"])
    time.sleep(0.5)  # so that all of them are there; were they not, they would come in smaller batches anyway
    came, _ = to_ends(intake, PARTITIONS)
    assert [row["stream_offset"] for row in rows(came)] == list(range(400))
    large = [columns for columns in came if int(columns.offsets[-1]) >= 300]
    assert max(sum(columns.offsets >= 300) for columns in large) <= 6


@pytest.mark.parametrize("at_once", [1, 7, 1_000, 1_500, 10_000])
def test_one_poll_brings_so_many_records_at_the_most(kafka: Kafka, at_once: int) -> None:
    """Of small ones too, of which many are read at once."""
    for _ in range(3_000):
        kafka.send("a", b"x")
    came, _ = to_ends(kafka.read("native", ["a"]), PARTITIONS, at_once=at_once)
    assert sum(map(len, came)) == 3_000
    assert max(map(len, came)) <= at_once


def test_a_header_whose_name_is_no_text_stops_nothing() -> None:
    """Kafka's own client shows U+FFFD for such bytes."""

    def names(*found: bytes) -> pa.Array:
        return pa.array(found, pa.binary()).view(pa.string())

    assert as_text(names(b"ok", b"\xff\xfe", "ü".encode())).to_pylist() == ["ok", "\ufffd\ufffd", "ü"]
    assert as_text(names(b"ok")).to_pylist() == ["ok"]
    assert as_text(names()).to_pylist() == []


def test_an_event_tells_all_that_kafka_says(kafka: Kafka) -> None:
    """Where a position is lost: the partition, the code and the text, as a message would."""
    kafka.send("a", b"x")
    told = {}
    for kind in ("native", "messages"):
        intake = kafka.read(kind, ["a"])
        consumer = kafka.consumer
        intake.expect([TopicPartition("a", 1)])
        consumer.assign([KafkaTopicPartition("a", 1, 7)])
        deadline = time.monotonic() + SECONDS_MAX
        lost: list[Event] = []
        while not lost:
            assert time.monotonic() < deadline
            events = intake.take(100, 0.1).events
            lost = [event for event in events if event.error.code() == KafkaError._AUTO_OFFSET_RESET]
        told[kind] = lost[0].tp, lost[0].error.code(), lost[0].error.str()
    assert told["native"] == told["messages"]
    assert told["native"][0] == TopicPartition("a", 1)
    assert "out of range" in told["native"][2]


def test_records_do_not_pile_up_in_memory(kafka: Kafka) -> None:
    """What was taken goes back to librdkafka, and the columns with those who held them."""
    for _ in range(40):
        kafka.send("a", b"x" * 100_000, headers=[("h", b"y" * 1_000)], key=b"z" * 1_000)
    process = psutil.Process()
    sizes = []
    for _ in range(30):
        intake = kafka.read("native", ["a"])
        came, _ = to_ends(intake, PARTITIONS)
        assert sum(map(len, came)) == 40
        del came
        intake.close()
        close(kafka.let_go())
        sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[9] < 20 * 4_000_000  # of 20 * 4 MB that came meanwhile, were they kept


def test_what_is_left_does_not_hold_up_closing(kafka: Kafka) -> None:
    """Nor does an intake that nobody closes: librdkafka would wait for its queue for ever."""
    for _ in range(10):
        kafka.send("a", b"x")
    intake = kafka.read("native", ["a"])
    consumer = kafka.let_go()
    deadline = time.monotonic() + SECONDS_MAX
    while not intake.take(1, 0.1).columns:
        assert time.monotonic() < deadline
    del intake
    close(consumer)


def test_a_closed_intake_says_so(kafka: Kafka) -> None:
    """Without that librdkafka would end the process."""
    intake = kafka.read("native", [])
    intake.close()
    intake.close()
    with pytest.raises(RuntimeError, match="closed"):
        intake.take(1, 0)


def test_a_record_on_the_consumers_own_queue_is_taken_too(kafka: Kafka) -> None:
    """And before those on ours, and with the word that a rebalance may lie in between."""
    for number in range(5):
        kafka.send("b", b"%d" % number, partition=2)
    intake = kafka.read("native", [])
    kafka.consumer.assign([KafkaTopicPartition("b", 2, 0)])  # and nobody has told the intake
    came: list[TakenIn] = []
    deadline = time.monotonic() + SECONDS_MAX
    while sum(len(columns) for taken in came for columns in taken.columns) < 5:
        assert time.monotonic() < deadline
        came.append(intake.take(10, 0.1))
    with_records = [taken for taken in came if taken.columns]
    assert [row["message_payload"] for row in rows([c for t in with_records for c in t.columns])] == [
        b"%d" % number for number in range(5)
    ]
    assert all(taken.mixed for taken in with_records)


def test_what_librdkafka_says_by_the_error_callback_is_an_event(kafka: Kafka) -> None:
    """Of partitions that are not there, on our queue; confluent_kafka's own callback would end the process."""
    kafka.send("a", b"x")
    intake = kafka.read("native", ["a", "nowhere"])
    events: list[Event] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(events) < 2 * PARTITIONS:
        assert time.monotonic() < deadline
        events += intake.take(10, 0.1).events
    told = [event for event in events if event.error.code() != KafkaError._PARTITION_EOF]
    assert {(event.tp.topic, event.error.name()) for event in told} == {("", "UNKNOWN_TOPIC_OR_PART")}
    for number in range(PARTITIONS):
        assert any(f"nowhere [{number}]" in event.error.str() for event in told)


def test_what_librdkafka_says_of_the_whole_client_is_an_event(kafka: Kafka) -> None:
    """On the consumer's queue; and only to the client that it was said of, however many a thread has."""
    kafka.send("a", b"x")
    well = kafka.read("native", ["a"])
    kafka.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
    ill = kafka.read("native", ["a"])
    ills_consumer = kafka.consumer
    told: dict[str, list[str]] = {"well": [], "ill": []}
    deadline = time.monotonic() + SECONDS_MAX
    while "_ALL_BROKERS_DOWN" not in told["ill"]:
        assert time.monotonic() < deadline
        assert ills_consumer.consume(1, 0.05) == []
        for name, intake in (("well", well), ("ill", ill)):
            told[name] += [event.error.name() for event in intake.take(10, 0.05).events if not event.tp.topic]
    assert told["well"] == []


_TAKES_ERRORS = """
int rd_kafka_conf_interceptor_add_on_new(void *, const char *, void *, void *);
void rd_kafka_conf_set_error_cb(void *, void (*)(void *, int, const char *, void *));
static void drop(void *client, int error, const char *text, void *opaque) {
    (void)client, (void)error, (void)text, (void)opaque;
}
static int on_new(void *client, void *conf, void *opaque, char *text, unsigned long bytes) {
    (void)client, (void)opaque, (void)text, (void)bytes;
    rd_kafka_conf_set_error_cb(conf, drop);
    return 0;
}
int conf_init(void *conf, void **opaque, char *text, unsigned long bytes) {
    (void)opaque, (void)text, (void)bytes;
    return rd_kafka_conf_interceptor_add_on_new(conf, "taker", (void *)on_new, 0);
}
"""


def test_a_client_whose_errors_do_not_come_to_us_is_refused(tmp_path: Path) -> None:
    """Or one that was made without our plugin: whoever had its errors would be called without Python's lock."""
    source, taker = tmp_path / "taker.c", tmp_path / "taker.so"
    source.write_text(_TAKES_ERRORS)
    assert build.build(source=source, target=taker) == ""
    ctypes.CDLL(cimpl.__file__, ctypes.RTLD_GLOBAL)  # where the taker finds librdkafka
    native = library.load()[0]
    assert native is not None
    options = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    for plugins, refused in (
        ({}, True),
        (library.with_plugin({}), False),
        (library.with_plugin({"plugin.library.paths": str(taker)}), False),
        ({"plugin.library.paths": f"{library.LIBRARY};{taker}"}, True),
    ):
        consumer = Consumer({**options, **plugins})
        if refused:
            with pytest.raises(RuntimeError, match="INGESTOR_NATIVE=off"):
                NativeIntake(native, consumer, ())
        else:
            NativeIntake(native, consumer, ()).close()
        close(consumer)


def test_a_partition_that_comes_back_at_once_is_read_each_time(kafka: Kafka) -> None:
    """Although librdkafka lets go of its queue some time after it was told to, and asked for it again."""
    for partition in range(PARTITIONS):
        kafka.send("a", b"x", partition=partition)
    tps = [TopicPartition("a", number) for number in range(PARTITIONS)]
    theirs = [KafkaTopicPartition(*tp, 0) for tp in tps]
    intake = kafka.read("native", ["a"])
    to_ends(intake, PARTITIONS)
    for _ in range(10):
        kafka.consumer.incremental_unassign(theirs)
        intake.forget(tps)
        intake.expect(tps)
        kafka.consumer.incremental_assign(theirs)
        came, _ = to_ends(intake, PARTITIONS)
        assert sum(map(len, came)) == PARTITIONS


def test_a_partition_that_is_no_longer_forwarded_is_forwarded_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka may end it late, when a partition was assigned again long since."""
    monkeypatch.setattr(native_intake, "_LEAD_SECONDS", 0.0)
    for partition in range(PARTITIONS):
        kafka.send("a", b"x", partition=partition)
    intake: Any = kafka.read("native", ["a"])
    to_ends(intake, PARTITIONS)
    for partition in range(PARTITIONS):
        queue = intake._native.partition_queue(intake._client, b"a", partition)
        intake._native.forward(queue, None)
        intake._native.destroy_queue(queue)
    intake.take(1_000, 0.1)
    for partition in range(PARTITIONS):
        kafka.send("a", b"x", partition=partition)
    came: list[Columns] = []
    deadline = time.monotonic() + SECONDS_MAX
    while sum(map(len, came)) < PARTITIONS:
        assert time.monotonic() < deadline
        came += intake.take(1_000, 0.1).columns


def test_the_users_own_plugins_stay() -> None:
    """They may watch the client, as tracing does."""
    assert library.with_plugin({"a": 1}) == {"a": 1, "plugin.library.paths": str(library.LIBRARY)}
    both = library.with_plugin({"plugin.library.paths": "tracing"})["plugin.library.paths"]
    assert both == f"tracing;{library.LIBRARY}"


def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    """Warnings are errors here; for users they are not."""
    target = tmp_path / "lib.so"
    assert build.build(target=target, flags=("-Wpedantic", "-Werror")) == ""
    assert library.Native(target).take_client() is None


def test_a_source_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a compiler that is not there; both leave what was built before."""
    broken, target = tmp_path / "broken.c", tmp_path / "lib.so"
    broken.write_text("int main(")
    target.write_text("before")
    assert "could not compile broken.c" in build.build(source=broken, target=target)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.build(target=target) == "no C compiler (cc)"
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.c", "lib.so"]


def test_without_the_library_there_is_a_reason() -> None:
    """The switch is for those who suspect it."""
    for value, why in (("off", "INGESTOR_NATIVE is off"), ("on", "")):
        done = subprocess.run(
            [sys.executable, "-c", "from ingestor.kafka.native.library import load; print(load()[1])"],
            env={**os.environ, library.SWITCH: value},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == why


@pytest.mark.parametrize(("found", "lines"), [("99.0.0", 1), ("2.16.1-RC1", 1), ("2.16.0", 0), ("2.9.0", 0)])
def test_a_librdkafka_newer_than_tested_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: str, lines: int
) -> None:
    """However many consumers there are; versions are compared as numbers."""
    monkeypatch.setattr(library, "libversion", lambda: (found, 0))
    monkeypatch.setattr(library, "NEWEST_TESTED", "2.16.0")
    library.load.cache_clear()
    with caplog.at_level("INFO", logs.NAME):
        assert library.load() == library.load()
    library.load.cache_clear()
    assert len([line for line in caplog.messages if "newer than tested" in line and found in line]) == lines


def test_the_librdkafka_that_is_shipped_is_a_tested_one() -> None:
    """The image installs requirements/ingest.txt; confluent_kafka has the minor version of its librdkafka."""
    pinned = re.search(r"^confluent-kafka==(\d+\.\d+)", (ROOT / "requirements/ingest.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert library.release(pinned[1]) <= library.release(library.NEWEST_TESTED)[:2]


def test_the_topics_of_a_batch_are_told_once(kafka: Kafka) -> None:
    """However many, and however mixed."""
    names = [f"t{number}" for number in range(5)]
    for number in range(200):
        kafka.send(names[number % 7 % 5], b"%d" % number, partition=number % PARTITIONS)
    came, _ = to_ends(kafka.read("native", names), len(names) * PARTITIONS)
    told = Counter(columns.topics[code] for columns in came for code in columns.topic_codes.tolist())
    assert told == Counter(names[number % 7 % 5] for number in range(200))
    assert all(len(set(columns.topics)) == len(columns.topics) for columns in came)
    assert all(columns.topic_codes.dtype == np.int32 for columns in came)
