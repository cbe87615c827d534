"""Reading data files for an audit: batches of bounded size, whoever wrote the file and however it is packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ingestor.audit import files
from ingestor.delta.storage import LocalStorage
from ingestor.records import COORDINATES, RawSchema
from tests.support.rawtables import TableMaker, records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VALUES = (*COORDINATES, "message_payload", "message_key")


def rows(payloads: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.Table:
    """Return rows of one partition; without keys there is no such column."""
    count = len(payloads)
    columns = {
        "stream_topic": pa.array(["t"] * count),
        "stream_partition": pa.array(np.zeros(count, np.int32)),
        "stream_offset": pa.array(np.arange(count)),
        "message_payload": pa.array(payloads, pa.binary()),
    }
    if keys is not None:
        columns["message_key"] = pa.array(keys, pa.binary())
    return pa.table(columns)


def read(folder: Path, columns: Sequence[str] = VALUES) -> list[pa.RecordBatch]:
    return list(files.read(LocalStorage(folder), "file.parquet", columns))


@pytest.mark.parametrize("by_dictionary", [True, False])
def test_batches_are_bounded_however_a_file_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_dictionary: bool
) -> None:
    """A value that stands in the file once for many rows is in memory for no more of them than any other."""
    monkeypatch.setattr(files, "_BATCH_BYTES", 50_000)
    payloads = [None if number % 7 == 0 else b"%d" % (number % 5) * 1_000 for number in range(2_000)]
    keys = [b"key" if number % 3 else None for number in range(2_000)]
    pq.write_table(rows(payloads, keys), tmp_path / "file.parquet", use_dictionary=by_dictionary)
    batches = read(tmp_path)
    assert max(batch.nbytes for batch in batches) < 2 * 50_000
    assert len(batches) > 10
    assert [value for batch in batches for value in batch.column("message_payload").to_pylist()] == payloads
    assert [value for batch in batches for value in batch.column("message_key").to_pylist()] == keys
    assert [value for batch in batches for value in batch.column("stream_offset").to_pylist()] == list(range(2_000))
    assert {batch.column("message_payload").type for batch in batches} == {pa.binary()}


@pytest.mark.parametrize("payloads", [[None] * 5, [b""] * 5, [b"x" * 200_000, b"y", None, b"x" * 200_000]])
def test_a_row_is_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payloads: list[bytes | None]) -> None:
    """Nor is one lost that has no bytes, or more than a batch may have."""
    monkeypatch.setattr(files, "_BATCH_BYTES", 50_000)
    pq.write_table(rows(payloads), tmp_path / "file.parquet")
    found = [value for batch in read(tmp_path) for value in batch.column("message_payload").to_pylist()]
    assert found == payloads


def test_a_column_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    """As in files from before it was asked for."""
    pq.write_table(rows([b"x"]), tmp_path / "file.parquet")
    (batch,) = read(tmp_path)
    assert batch.schema.names == [*COORDINATES, "message_payload"]
    pq.write_table(rows([b"x"]).drop_columns(["stream_topic"]), tmp_path / "file.parquet")
    with pytest.raises(files.FileDamagedError, match="no column stream_topic"):
        read(tmp_path)


def test_files_that_a_delete_wrote_anew_are_read_as_any(tmp_path: Path) -> None:
    """delta-rs writes types into them that Arrow can do little with."""
    maker = TableMaker(tmp_path / "raw", RawSchema(extras=("key",)))
    maker.flush(records(*range(10)))
    table = DeltaTable(maker.uri)
    before = sorted(row["message_payload"] for row in table.to_pyarrow_table().to_pylist())
    table.delete("stream_offset = 3")
    (file,) = DeltaTable(maker.uri).file_uris()
    folder, _, name = file.rpartition("/")
    (batch,) = files.read(LocalStorage(type(tmp_path)(folder)), name, VALUES)
    found = batch.column("message_payload").to_pylist()
    assert len(found) == 9
    assert set(found) <= set(before)
    assert batch.column("message_payload").type == batch.column("message_key").type == pa.binary()
