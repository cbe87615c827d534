"""Dead letters read from whatever writer's files, and known again from whatever is on a topic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.dead_letters import letters, pending, portions
from ingestor.dead_letters.attempt import Attempt, Noted, mark_of, since
from ingestor.dead_letters.letters import SCHEMA, DeadLetter, ranges
from ingestor.dead_letters.message import dead_letter, replayed
from ingestor.dead_letters.replayed import Replayed
from ingestor.dead_letters.selection import Selection
from ingestor.dead_letters.service import Status
from ingestor.delta.deltalog import AddedFile, Entry
from ingestor.delta.storage import LocalStorage
from ingestor.errors import Unavailable
from ingestor.kafka.broker import Watermarks
from ingestor.records import Coordinate, TopicPartition
from tests.support.quarantine import letter

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

YEAR_9999_US = 253_402_300_799_999_000


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=SCHEMA)


def read(folder: Path, *names: str) -> list[list[DeadLetter]]:
    storage = LocalStorage(folder)
    return list(portions.portions(storage, names, letters.index(storage, names)))


def flat(found: list[list[DeadLetter]]) -> list[DeadLetter]:
    return [letter for portion in found for letter in portion]


# --- files -----------------------------------------------------------------------------------------------------------


def test_timestamps_are_read_however_spark_wrote_them(tmp_path: Path) -> None:
    """INT96 has no time zone, and in nanoseconds the year 9999 would not fit."""
    rows = table(letter("t", 0, 1, message_timestamp=YEAR_9999_US), letter("t", 0, 2, message_timestamp=None))
    pq.write_table(rows, tmp_path / "int96", use_deprecated_int96_timestamps=True)
    place = rows.schema.get_field_index("message_timestamp")
    naive = rows.set_column(place, "message_timestamp", rows.column(place).cast(pa.timestamp("us")))
    pq.write_table(naive, tmp_path / "naive")

    for name in ("int96", "naive"):
        assert [each.timestamp_ms for each in flat(read(tmp_path, name))] == [YEAR_9999_US // 1000, None]


def test_a_column_that_a_file_has_not_got_is_null(tmp_path: Path) -> None:
    """An older table may lack what is optional; headers may be called by another writer's names."""
    headers = pa.list_(pa.struct([pa.field("key", pa.string_view()), pa.field("value", pa.binary())]))
    rows = table(letter("t", 0, 1)).drop_columns(["message_timestamp_type", "message_headers"])
    rows = rows.append_column("message_headers", pa.array([[{"key": "h", "value": b"\xff"}]], headers))
    pq.write_table(rows, tmp_path / "one")
    pq.write_table(table(letter("t", 0, 2)).drop_columns(["message_headers"]), tmp_path / "other")

    first, second = flat(read(tmp_path, "one", "other"))

    assert first.headers == (("h", b"\xff"),)
    assert second.headers == ()


def test_letters_come_in_order_whatever_files_and_row_groups_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in portions of a bounded size, each row once."""
    monkeypatch.setattr(portions, "_ROWS_MAX", 7)
    rows = [letter(topic, partition, offset) for topic in "ab" for partition in range(3) for offset in range(10)]
    pq.write_table(table(*rows[::-2]), tmp_path / "one", row_group_size=4)
    pq.write_table(table(*rows[::2]), tmp_path / "other", row_group_size=9)

    parts = read(tmp_path, "one", "other")
    found = flat(parts)

    assert max(map(len, parts)) == 7
    assert [each.origin for each in found] == [
        Coordinate(row["stream_topic"], row["stream_partition"], row["stream_offset"]) for row in rows
    ]
    assert [each.value for each in found] == [row["message_payload"] for row in rows]


def packed(count: int, value: bytes) -> pa.Table:
    """Return rows of one payload, which a file holds once."""
    rows = table(*(letter("t", 0, offset) for offset in range(count)))
    payload = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))
    return rows.set_column(rows.schema.get_field_index("message_payload"), "message_payload", payload)


@pytest.mark.parametrize("step", [1, -1])
def test_a_portion_is_sized_by_what_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A file that holds equal payloads once is small; its letters are not."""
    monkeypatch.setattr(portions, "_BYTES_MAX", 10_000)
    rows = packed(400, bytes(1_000))
    pq.write_table(rows.take(list(range(400))[::step]), tmp_path / "one", store_schema=False)
    assert (tmp_path / "one").stat().st_size < 20_000

    found = read(tmp_path, "one")

    assert {len(portion) for portion in found} <= set(range(1, 10))
    assert [each.origin.offset for each in flat(found)] == list(range(400))
    assert {each.value for each in flat(found)} == {bytes(1_000)}


def test_a_letter_that_is_larger_than_a_portion_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones before it and behind it go together; headers and keys count too."""
    monkeypatch.setattr(portions, "_BYTES_MAX", 10_000)
    rows = [letter("t", 0, offset) for offset in range(7)]
    rows[2] |= {"message_payload": bytes(20_000)}
    rows[3] |= {"message_headers": [{"key": "h", "value": bytes(20_000)}]}
    rows[5] |= {"message_key": bytes(20_000)}
    pq.write_table(table(*rows), tmp_path / "one")

    assert [[each.origin.offset for each in part] for part in read(tmp_path, "one")] == [
        [0, 1],
        [2],
        [3],
        [4],
        [5],
        [6],
    ]


def test_a_row_group_of_more_than_two_gigabytes_is_read(tmp_path: Path) -> None:
    """One Arrow array holds 2 GiB of bytes; packed it is a file of 50 KB."""
    pq.write_table(packed(4_400, bytes(500_000)), tmp_path / "one", row_group_size=4_400, store_schema=False)
    storage = LocalStorage(tmp_path)
    seen = 0

    for portion in portions.portions(storage, ["one"], letters.index(storage, ["one"])):
        assert [each.origin.offset for each in portion] == list(range(seen, seen + len(portion)))
        assert sum(each.size for each in portion) <= 16 << 20
        seen += len(portion)

    assert seen == 4_400


def test_offsets_are_noted_as_ranges() -> None:
    """A commit holds many."""
    assert ranges([1, 2, 3, 7, 9, 10]) == [[1, 3], [7, 7], [9, 10]]
    assert ranges([]) == []


# --- messages --------------------------------------------------------------------------------------------------------


class Message:
    """A message as a consumer gets it."""

    def __init__(self, value: bytes | None, headers: Any) -> None:
        self._value = value
        self._headers = headers

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Any:
        return self._headers


LETTER = DeadLetter(Coordinate("t", 3, 44), 5, b"\xff", b"k", (("h", b"1"),), "malformed", "MalformedRecord", "no")


@pytest.mark.parametrize("style", ["headers", "envelope", "replay"])
def test_a_record_is_known_by_its_last_header_alone(style: Any) -> None:
    """Whatever its own headers say, marks of others among them."""
    attempt, other = Attempt(), Attempt()
    mark = attempt.mark(LETTER.origin)
    own = (("dlq.mark", other.mark(LETTER.origin)), ("dlq.replayed.from", b"t/3/45"))
    letter = dataclasses.replace(LETTER, headers=own)

    sent = replayed(letter, mark) if style == "replay" else dead_letter(letter, "t-dlq", style, 1, mark)

    assert mark_of(list(sent.headers)) == mark


def test_nobody_else_can_make_a_mark() -> None:
    """It speaks of one letter in one attempt; the secret is not in it, nor in what people see."""
    attempt = Attempt()
    mark = attempt.mark(Coordinate("t", 3, 44))
    assert mark == Attempt(attempt.secret).mark(Coordinate("t", 3, 44))
    assert mark not in {attempt.mark(Coordinate("t", 3, 45)), Attempt().mark(Coordinate("t", 3, 44))}
    assert attempt.secret.encode() not in mark
    assert attempt.secret not in repr(attempt)
    assert Attempt.read(attempt.as_noted()) == attempt


@pytest.mark.parametrize(
    "headers", [None, [], [("dlq.mark", None)], [("dlq.mark", b"x")], [("dlq.mark", b"1" * 32), ("h", b"1")]]
)
def test_messages_of_others_bear_no_mark(headers: Any) -> None:
    """They may be on the topic too."""
    assert mark_of(headers) is None


class Cluster:
    """A cluster with one topic, as far as an attempt asks."""

    def __init__(self, marks: list[tuple[int, int]], topic_id: str) -> None:
        self._marks = {TopicPartition("t-dlq", n): Watermarks(low, high, high) for n, (low, high) in enumerate(marks)}
        self._id = topic_id

    def topics(self) -> dict[str, int]:
        return {"t-dlq": len(self._marks)} if self._marks else {}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(names, self._id) if self._id else {}

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {tp: self._marks[tp] for tp in tps}


@pytest.mark.parametrize(
    ("marks", "topic_id", "spans", "lost", "other"),
    [
        ([(0, 9), (0, 3)], "A", {0: (5, 9)}, [], []),
        ([(0, 5), (0, 3), (0, 2)], "A", {2: (0, 2)}, [], []),  # a partition more
        ([(7, 9), (0, 3)], "A", {0: (7, 9)}, [0], []),  # retention was quicker
        ([(0, 9), (0, 9)], "B", {}, [], ["t-dlq"]),  # made anew, with more
        ([(0, 9), (0, 2)], "A", {}, [], ["t-dlq"]),  # shorter than it was
        ([(0, 9)], "A", {}, [], ["t-dlq"]),
        ([], "A", {}, [], ["t-dlq"]),  # gone
    ],
)
def test_what_has_come_since_an_attempt_is_seen_or_known_to_be_lost(
    marks: list[tuple[int, int]], topic_id: str, spans: dict[int, Any], lost: list[int], other: list[str]
) -> None:
    """By the topic's id first, then by what its partitions hold."""
    cluster: Any = Cluster(marks, topic_id)
    found = since(cluster, Attempt(topics={"t-dlq": Noted("A", [5, 3])}))

    assert {tp.partition: span for tp, span in found.spans.items()} == spans
    assert [tp.partition for tp in found.lost] == lost
    assert list(found.other) == other


def test_a_topic_whose_id_is_not_told_any_more_is_waited_for() -> None:
    """Else whoever asks often enough gets by; where none was told before, offsets have to do."""
    cluster: Any = Cluster([(0, 9), (0, 3)], "")
    with pytest.raises(Unavailable, match="does not return the id of topic t-dlq"):
        since(cluster, Attempt(topics={"t-dlq": Noted("A", [5, 3])}))
    assert not since(cluster, Attempt(topics={"t-dlq": Noted("", [5, 3])})).other


def test_nothing_is_sent_to_a_topic_that_kafka_does_not_show() -> None:
    """A kill would leave nobody who knows where to look."""
    cluster: Any = Cluster([(0, 9)], "A")
    with pytest.raises(Unavailable, match="does not show topic elsewhere"):
        Attempt().over(cluster, ["t-dlq", "elsewhere"])
    assert Attempt().over(cluster, ["t-dlq"]).topics == {"t-dlq": Noted("A", [9])}


# --- what was replayed -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 9)), max_size=60), st.integers(1, 9))
def test_what_was_replayed_is_what_the_txns_say(places: list[tuple[str, int, int]], step: int) -> None:
    """Noted in portions of any size and order, runs that touch become one, and nothing else is in them."""
    origins = [Coordinate(*place) for place in places]
    txns: dict[str, int] = {"shop/dlq": 7, "shop/dlq-replay": 2}
    for first in range(0, len(origins), step):
        moved = Replayed.of("shop", txns).txns_with(origins[first : first + step])
        assert all(last > txns.get(name, -1) for name, last in moved.items())
        txns |= moved

    every = [Coordinate(topic, partition, offset) for topic in "ab" for partition in range(2) for offset in range(10)]
    assert Replayed.of("shop", txns).without(every) == [origin for origin in every if origin not in set(origins)]


# --- the table's log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "adds", "removes", "changes", "verdict"),
    [
        ("WRITE", 1, 0, True, "new"),
        ("STREAMING UPDATE", 2, 0, True, "new"),
        ("WRITE", 1, 1, True, "put back"),
        ("CREATE OR REPLACE TABLE AS SELECT", 1, 1, True, "put back"),
        ("RESTORE", 1, 0, True, "put back"),
        ("RESTORE", 1, 1, True, "put back"),
        ("RESTORE", 0, 1, True, "quiet"),
        ("WRITE", 0, 1, True, "quiet"),
        ("OPTIMIZE", 1, 2, False, "quiet"),
        ("COMPUTE STATS", 1, 0, False, "quiet"),
        ("DELETE", 1, 1, True, "quiet"),
        ("UPDATE", 1, 1, True, "quiet"),
        ("MERGE", 1, 1, True, "quiet"),
        ("SET TBLPROPERTIES", 0, 0, True, "quiet"),
    ],
)
def test_an_entry_is_judged_by_what_it_did(
    operation: str,
    adds: int,
    removes: int,
    changes: bool,  # noqa: FBT001
    verdict: str,
) -> None:
    """What only adds is new; what may have put rows back is a person's to judge; the rest brings nothing."""
    added = tuple(AddedFile(f"a{n}", 1, {}, {}, changes) for n in range(adds))
    gone = tuple(f"r{n}" for n in range(removes))
    entry = Entry(3, {"operation": operation}, adds=added, removes=gone)

    assert pending.is_new(entry) == (verdict == "new")
    assert pending.puts_back(entry) == (verdict == "put back")
    assert pending.is_quiet(entry) == (verdict == "quiet")


# --- selection and status --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (("malformed",), [0]),
        (("rule",), [1, 2]),
        (("rule:x",), [1]),
        (("required:id", "malformed"), [0, 2]),
        (("rul",), []),
    ],
)
def test_a_letter_with_several_reasons_is_found_by_each(wanted: tuple[str, ...], offsets: list[int]) -> None:
    """`rule` means every rule, but not everything that begins so."""
    reasons = ["malformed", "rule:x", "required:id;rule:y", None]
    rows = table(*(letter("t", 0, offset, error_reason=reason) for offset, reason in enumerate(reasons)))

    found = Selection(reasons=wanted).of(rows)

    assert found.column("stream_offset").to_pylist() == offsets


def test_a_publisher_says_what_waits_and_for_whom() -> None:
    """Kafka and the store are told apart, and it is well again when it is."""
    status = Status(60)
    assert status.readiness() == ["the first turn has not ended yet"]
    status.failed("a", "no answer", kafka=None)
    status.turned()
    assert status.components() == {
        "kafka": None,
        "storage": "no answer",
        "breaker": None,
        "dead_letters": "dead letters of a wait",
    }
    status.failed("a", "no answer", kafka="Kafka is away")
    assert status.components()["kafka"] == "Kafka is away"
    assert status.components()["storage"] is None
    status.well("a", 3)
    assert status.readiness() == []
    assert not any(status.components().values())
    assert status.letters == 3
    assert status.live()
