"""A row group: rows wait in it until writing them pays, and what repeats is held once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingestor.ingest import row_group
from ingestor.ingest.row_group import RowGroup
from ingestor.kafka.native import library

NAMES = ["offset", "key", "payload"]
NATIVE = library.load()[0] is not None


def batch(payloads: list[bytes | None], *, keys: list[bytes | None] | None = None, first: int = 0) -> pa.RecordBatch:
    """Return rows of some payloads, all of one key unless told otherwise."""
    count = len(payloads)
    return pa.record_batch(
        {
            "offset": pa.array(range(first, first + count), pa.int64()),
            "key": pa.array(keys if keys is not None else [b"k"] * count, pa.binary()),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


def unique(count: int, *, first: int = 0, size: int = 100) -> list[bytes | None]:
    return [b"%*d" % (size, number) for number in range(first, first + count)]


def test_rows_keep_their_order_and_columns_get_theirs() -> None:
    """As they came, over all batches."""
    rows = RowGroup()
    assert rows.empty
    rows.add(batch([b"b", None]))
    rows.add(batch([b"", b"a"], first=2))
    table = rows.table(["payload", "offset"])
    assert table.to_pydict() == {"payload": [b"b", None, b"", b"a"], "offset": [0, 1, 2, 3]}
    assert not rows.empty


@pytest.mark.usefixtures("either_intake")
@pytest.mark.parametrize(
    ("payloads", "repeat"),
    [
        (unique(100), False),
        (unique(75) + unique(25), True),
        (unique(76) + unique(24), False),
        ([None] * 100, True),
        ([b""] * 100, True),
        (unique(70) + [None] * 30, False),
        ([None, *unique(3)], False),
        ([b"x"], False),
    ],
)
def test_each_column_is_packed_if_it_repeats(payloads: list[bytes | None], repeat: bool) -> None:  # noqa: FBT001
    """Whether or not there is a native library, the verdict is the same, and so are the rows."""
    rows = RowGroup()
    rows.add(batch(payloads[:30], keys=unique(len(payloads[:30]))))
    rows.add(batch(payloads[30:], keys=unique(len(payloads[30:]), first=30), first=30))
    assert rows.pack(["payload", "key", "nowhere"]) == ({"payload"} if repeat else set())
    assert list(rows.packed) == (["payload"] if repeat and library.load()[0] is not None else [])
    table = rows.table(NAMES)
    assert table.column("payload").to_pylist() == payloads
    assert table.column("offset").to_pylist() == list(range(len(payloads)))


@pytest.mark.skipif(not NATIVE, reason="only the native library packs")
def test_packed_columns_stay_packed() -> None:
    """In this row group and in the next: a file's row groups are all of one kind."""
    rows = RowGroup()
    rows.add(batch([b"x" * 1_000] * 50))
    assert rows.pack(["payload"]) == {"payload"}
    rows.add(batch([b"y", None, b"x" * 1_000], first=50))
    table = rows.table(NAMES)
    assert table.column("payload").to_pylist() == [*[b"x" * 1_000] * 50, b"y", None, b"x" * 1_000]
    assert table.column("payload").chunk(0).dictionary.to_pylist() == [b"x" * 1_000, b"y"]
    later = RowGroup(rows.packed)
    later.add(batch([b"z"]))
    assert later.table(NAMES).schema.equals(table.schema)


@pytest.mark.skipif(not NATIVE, reason="only the native library packs")
def test_memory_counts_a_packed_value_once() -> None:
    """So rows that repeat may be many before they have to be written."""
    rows = RowGroup()
    rows.add(batch([b"x" * 1_000] * 100))
    assert rows.memory_bytes > 100_000
    rows.pack(["payload"])
    before = rows.memory_bytes
    assert before < 10_000
    rows.add(batch([b"x" * 1_000] * 100))
    assert 1_200 < rows.memory_bytes - before < 2_500  # offset, key and number of each
    before = rows.memory_bytes
    rows.add(batch([b"y" * 1_000]))
    assert 1_000 < rows.memory_bytes - before < 1_100


@pytest.mark.skipif(not NATIVE, reason="only the native library packs")
def test_what_is_not_packed_stays_bounded_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only keys repeat, payloads are encoded when they are written; they are not gathered for longer."""
    monkeypatch.setattr(row_group, "PLAIN_BYTES", 10_000)
    rows = RowGroup()
    rows.add(batch(unique(70)))
    assert rows.pack(["payload", "key"]) == {"key"}
    assert not rows.full(1 << 40)
    rows.add(batch(unique(30)))
    assert rows.full(1 << 40)


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.skipif(not NATIVE, reason="native"))])
def test_many_polls_of_a_row_each_do_not_pile_up(*, packed: bool) -> None:
    """Each would take some KB that nobody counts; their rows stay what they are."""
    rows = RowGroup(["payload", "key"] if packed else [])
    for number in range(1_000):
        rows.add(batch([None if number % 3 else b"x"], first=number))
    assert len(rows._batches) < 100
    table = rows.table(NAMES)
    assert table.column("offset").to_pylist() == list(range(1_000))
    assert table.column("payload").to_pylist() == [None if number % 3 else b"x" for number in range(1_000)]


def test_it_is_full_at_its_size_or_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is less."""
    monkeypatch.setattr(row_group, "PLAIN_BYTES", 5_000)
    rows = RowGroup()
    rows.add(batch(unique(30)))
    assert not rows.full(1 << 40)
    assert not rows.full(rows.memory_bytes + 1)
    assert rows.full(rows.memory_bytes)
    rows.add(batch(unique(30)))
    assert rows.full(1 << 40)


@pytest.mark.skipif(not NATIVE, reason="only the native library packs")
def test_a_packed_one_waits_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its own size, and never beyond its share."""
    monkeypatch.setattr(row_group, "PLAIN_BYTES", 8_000)
    monkeypatch.setattr(row_group, "PACKED_BYTES", 9_000)
    rows = RowGroup()
    rows.add(batch([b"x" * 1_000] * 10))
    assert rows.full(1 << 40)
    rows.pack(["payload"])
    assert not rows.full(1 << 40)
    assert rows.full(1_000)
    while rows.memory_bytes < 9_000:
        assert not rows.full(1 << 40)
        rows.add(batch([b"x" * 1_000] * 10))
    assert rows.full(1 << 40)
