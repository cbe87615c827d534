"""The benchmark's old tables: whatever their age, commits go on from where their logs end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from bench.tables import COMPACTED_EVERY, OldTable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("length", [COMPACTED_EVERY - 1, COMPACTED_EVERY, COMPACTED_EVERY + 1, 2 * COMPACTED_EVERY + 1])
def test_compacted_tables_have_few_files_and_take_commits(tmp_path: Path, length: int) -> None:
    """Also one whose last entry would have been a compaction."""
    old = OldTable(tmp_path, length=length, partitions=2, checkpoints=True, compacted=True)
    old.commit(length + 1)
    compactions = (length - 1) // COMPACTED_EVERY
    since = length + 1 - compactions * COMPACTED_EVERY
    table = DeltaTable(tmp_path)
    assert table.version() == length + 1
    assert len(table.file_uris()) == compactions + since
