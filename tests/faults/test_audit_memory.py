"""An audit of millions of rows takes no more memory than one of a few."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ingestor.delta.table import RawTable
from ingestor.delta.table_log import DataFile
from ingestor.records import RawSchema
from tests.support.process.command import write_config
from tests.support.process.peak import peak_mib

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROWS_PER_FILE = 100_000
MORE_MIB_MAX = 64


def fill(path: Path, files: int) -> None:
    """Make a table of one partition, a commit for each file."""
    table = RawTable(str(path), RawSchema(), {})
    for number in range(files):
        first = number * ROWS_PER_FILE
        last = first + ROWS_PER_FILE - 1
        name = f"{uuid.uuid4().hex}.parquet"
        rows = {
            "stream_topic": pa.array(["t"]).take(pa.array(np.zeros(ROWS_PER_FILE, np.int32))),
            "stream_partition": pa.array(np.zeros(ROWS_PER_FILE, np.int32)),
            "stream_offset": pa.array(np.arange(first, last + 1)),
            "message_timestamp": pa.array(np.arange(first, last + 1), pa.timestamp("us", "UTC")),
            "message_payload": pa.array([b"payload %d" % offset for offset in range(first, last + 1)]),
        }
        with table.storage.create(name) as sink:
            pq.write_table(pa.table(rows, table.schema.file), sink)
        bounds = {
            "numRecords": ROWS_PER_FILE,
            "minValues": {"stream_topic": "t", "stream_partition": 0, "stream_offset": first},
            "maxValues": {"stream_topic": "t", "stream_partition": 0, "stream_offset": last},
        }
        file = DataFile(name, (path / name).stat().st_size, bounds)
        info = {"commit_id": uuid.uuid4().hex, "app_id": "shop", "operation_kind": "flush"}
        table.attempt((file,), {"shop/t/0": last}, info)
        table.refresh()


def audit_mib(folder: Path, files: int, *, emptied: bool = False) -> float:
    """Audit a table of so many files, all of them removed if `emptied`, and return the most memory that it took."""
    config = write_config(folder, "127.0.0.1:9", "t")
    fill(folder / "table", files)
    if emptied:
        DeltaTable(folder / "table").delete()
    code, mib = peak_mib("audit", config)
    assert code == (3 if emptied else 0)
    return mib


def test_an_audit_of_millions_of_rows_takes_hardly_more_memory_than_one_of_a_few(tmp_path: Path) -> None:
    """Ten million rows beside a hundred thousand."""
    small = audit_mib(tmp_path / "small", 1)
    large = audit_mib(tmp_path / "large", 100)
    print(f"100,000 rows: {small:.0f} MiB; 10,000,000 rows: {large:.0f} MiB")  # noqa: T201
    assert large - small < MORE_MIB_MAX


def test_millions_of_rows_that_somebody_removed_take_hardly_more_memory_than_a_few(tmp_path: Path) -> None:
    """They are marked piece by piece."""
    small = audit_mib(tmp_path / "small", 1, emptied=True)
    large = audit_mib(tmp_path / "large", 100, emptied=True)
    print(f"100,000 rows: {small:.0f} MiB; 10,000,000 rows: {large:.0f} MiB")  # noqa: T201
    assert large - small < MORE_MIB_MAX
