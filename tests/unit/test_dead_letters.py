"""Dead letters read from whatever writer's files, and known again from whatever is on a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingestor.dead_letters import letters
from ingestor.dead_letters.letters import SCHEMA, Coordinate, DeadLetter, ranges
from ingestor.dead_letters.message import dead_letter, origins_of, replay_of, replayed
from ingestor.dead_letters.selection import Selection
from ingestor.dead_letters.service import Status
from ingestor.storage import LocalStorage
from tests.support.quarantine import letter

if TYPE_CHECKING:
    from pathlib import Path

YEAR_9999_US = 253_402_300_799_999_000


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=SCHEMA)


def read(folder: Path, *names: str) -> list[DeadLetter]:
    storage = LocalStorage(folder)
    found = letters.index(storage, names)
    return [
        each for portion in letters.portions(storage, names, found) for each in letters.fetch(storage, names, portion)
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def test_timestamps_are_read_however_spark_wrote_them(tmp_path: Path) -> None:
    """INT96 has no time zone, and in nanoseconds the year 9999 would not fit."""
    rows = table(letter("t", 0, 1, message_timestamp=YEAR_9999_US), letter("t", 0, 2, message_timestamp=None))
    pq.write_table(rows, tmp_path / "int96", use_deprecated_int96_timestamps=True)
    place = rows.schema.get_field_index("message_timestamp")
    naive = rows.set_column(place, "message_timestamp", rows.column(place).cast(pa.timestamp("us")))
    pq.write_table(naive, tmp_path / "naive")

    for name in ("int96", "naive"):
        assert [each.timestamp_ms for each in read(tmp_path, name)] == [YEAR_9999_US // 1000, None]


def test_a_column_that_a_file_has_not_got_is_null(tmp_path: Path) -> None:
    """An older table may lack what is optional; headers may be called by another writer's names."""
    headers = pa.list_(pa.struct([pa.field("key", pa.string_view()), pa.field("value", pa.binary())]))
    rows = table(letter("t", 0, 1)).drop_columns(["message_timestamp_type", "message_headers"])
    rows = rows.append_column("message_headers", pa.array([[{"key": "h", "value": b"\xff"}]], headers))
    pq.write_table(rows, tmp_path / "one")
    pq.write_table(table(letter("t", 0, 2)).drop_columns(["message_headers"]), tmp_path / "other")

    first, second = read(tmp_path, "one", "other")

    assert first.headers == (("h", b"\xff"),)
    assert second.headers == ()


def test_letters_come_in_order_whatever_files_and_row_groups_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in portions of a bounded size, each row once."""
    monkeypatch.setattr(letters, "_ROWS_MAX", 7)
    rows = [letter(topic, partition, offset) for topic in "ab" for partition in range(3) for offset in range(10)]
    pq.write_table(table(*rows[::-2]), tmp_path / "one", row_group_size=4)
    pq.write_table(table(*rows[::2]), tmp_path / "other", row_group_size=9)

    found = read(tmp_path, "one", "other")

    assert [each.origin for each in found] == [
        Coordinate(row["stream_topic"], row["stream_partition"], row["stream_offset"]) for row in rows
    ]
    assert [each.value for each in found] == [row["message_payload"] for row in rows]


def test_portions_of_large_records_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one transaction sends has to fit into memory."""
    monkeypatch.setattr(letters, "_BYTES_MAX", 10_000)
    rows = [letter("t", 0, offset, message_payload=bytes(1_000)) for offset in range(40)]
    pq.write_table(table(*rows), tmp_path / "one", use_dictionary=False)
    storage = LocalStorage(tmp_path)

    found = letters.portions(storage, ["one"], letters.index(storage, ["one"]))

    assert max(map(len, found)) < 10
    assert sum(map(len, found)) == 40


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


@pytest.mark.parametrize("style", ["headers", "envelope"])
def test_a_dead_letter_is_known_again(style: Any) -> None:
    """In either format, also beside headers of an earlier life."""
    earlier = dead_letter(LETTER, "t-dlq", "headers", 1).headers
    again = DeadLetter(Coordinate("t-dlq", 0, 9), 5, b"v", None, earlier, "malformed", "MalformedRecord", "no")
    sent = dead_letter(again, "t-dlq-dlq", style, 2)

    assert Coordinate("t-dlq", 0, 9) in list(origins_of(Message(sent.value, list(sent.headers))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (None, None),
        (b'{"original_topic": 1', None),
        (b'{"original_topic": "t"}', []),
        (b"x", [("dlq.original.topic", b"t"), ("dlq.original.partition", b"x"), ("dlq.original.offset", b"1")]),
        (b"x", [("dlq.original.topic", None), ("dlq.original.offset", b"1")]),
    ],
)
def test_messages_of_others_are_nobodys_dead_letter(value: bytes | None, headers: Any) -> None:
    """They may be on the topic too."""
    assert list(origins_of(Message(value, headers))) == []  # type: ignore[arg-type]


def test_a_replay_is_known_again() -> None:
    """The last header of that name counts: a record may be replayed more than once in its lives."""
    sent = replayed(DeadLetter(Coordinate("t", 3, 45), 5, b"v", None, replayed(LETTER).headers, "", "", ""))

    assert replay_of(Message(b"v", list(sent.headers))) == Coordinate("t", 3, 45)  # type: ignore[arg-type]
    for text in (b"", b"t", b"t/1", b"t/x/1", b"/1/2"):
        assert replay_of(Message(b"v", [("dlq.replayed.from", text)])) is None  # type: ignore[arg-type]


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
