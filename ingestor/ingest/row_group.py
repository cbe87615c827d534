"""Rows that wait to be written together, and columns of which they hold each distinct value once.

Such a column takes four bytes a row beside its values. So where values repeat a row group has far more rows, and each
bears less of what its dictionary costs to compress and to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ingestor.kafka.native import dictionary

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

# What is encoded when it is written costs least CPU and memory in row groups of a few MiB. Much smaller ones cost both;
# twice as large ones take an eighth longer, because the worker begins later each time and poll thread and worker wait
# for each other more.
PLAIN_BYTES = 4 << 20
PACKED_BYTES = 8 << 20  # with packed columns, which are taken in as they come
_REPEATING_MAX = 0.75  # distinct values among so many; above that a dictionary costs a tenth more
_SAMPLE_ROWS = 10_000
_BATCHES_MAX = 64  # Arrow and numpy take 5 KB for each, which nobody counts


class PackedColumn:
    """A column's distinct values, and for each row the number of its own."""

    def __init__(self) -> None:
        self._dictionary = dictionary.new_dictionary()
        self._numbers: list[npt.NDArray[np.int32]] = []
        self._rows = self._nulls = 0

    @property
    def memory_bytes(self) -> int:
        """Return what values and numbers take."""
        return self._dictionary.nbytes + self._rows * np.dtype(np.int32).itemsize

    @property
    def repeats(self) -> bool:
        """Tell whether values come again often enough; nulls are none."""
        return len(self._dictionary) <= _REPEATING_MAX * (self._rows - self._nulls)

    def add(self, values: pa.Array) -> None:
        """Take in more rows."""
        self._numbers.append(self._dictionary.add(values))
        self._rows += len(values)
        self._nulls += values.null_count

    def merge(self) -> None:
        """Put what was taken in one by one into one piece."""
        self._numbers = [np.concatenate(self._numbers)]

    def array(self) -> pa.Array:
        """Return all rows, of which there is one at least; after that nothing can be added."""
        numbers = np.concatenate(self._numbers)
        indices = pa.array(numbers, pa.int32(), mask=numbers < 0 if self._nulls else None)
        return pa.DictionaryArray.from_arrays(indices, self._dictionary.values())


class RowGroup:
    """Rows of one file, in the order in which they came."""

    def __init__(self, packed: Collection[str] = ()) -> None:
        """Begin with no rows; of these columns, packed in a row group before, hold each value once."""
        self.packed = frozenset(packed)
        self._columns: dict[str, PackedColumn] = {}  # made with the first rows: what stays empty needs no memory
        self._batches: list[pa.RecordBatch] = []  # without what is packed
        self._merged = 0  # so many of them are merged ones
        self._batches_bytes = 0

    @property
    def empty(self) -> bool:
        """Tell whether there is no row."""
        return not self._batches

    @property
    def memory_bytes(self) -> int:
        """Return what the rows take."""
        return self._batches_bytes + sum(column.memory_bytes for column in self._columns.values())

    def full(self, share: int) -> bool:
        """Tell whether to write it, if it may take such a share of memory at the most."""
        taken = self.memory_bytes
        return taken >= share or taken >= PACKED_BYTES or self._batches_bytes >= PLAIN_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in more rows."""
        if self.empty:
            self._columns = {name: PackedColumn() for name in self.packed}
        for name, column in self._columns.items():
            column.add(batch.column(name))
        self._batches.append(self._without_packed(batch))
        self._batches_bytes += self._batches[-1].nbytes
        if len(self._batches) - self._merged == _BATCHES_MAX:
            self._merge()

    def _without_packed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.drop_columns(list(self.packed)) if self.packed else batch

    def _merge(self) -> None:
        """Put the batches that came one by one into one: polls may bring a row each, and an hour may pass."""
        small = pa.Table.from_batches(self._batches[self._merged :]).unify_dictionaries().combine_chunks()
        self._batches[self._merged :] = small.to_batches()
        self._merged = len(self._batches)
        for column in self._columns.values():
            column.merge()

    def pack(self, names: Collection[str]) -> frozenset[str]:
        """Return which of these columns repeat, and hold each of their values once from now on, where that is possible.

        Before the first rows are written: a file's columns are packed in all of its row groups or in none.
        """
        present = [name for name in names if name in self._batches[0].schema.names]
        if not dictionary.available():
            return frozenset(name for name in present if self._sample_repeats(name))
        tried = {name: PackedColumn() for name in present}
        for name, column in tried.items():
            for batch in self._batches:
                column.add(batch.column(name))
        self._columns = {name: column for name, column in tried.items() if column.repeats}
        self.packed = frozenset(self._columns)
        self._batches = [self._without_packed(batch) for batch in self._batches]
        self._batches_bytes = sum(batch.nbytes for batch in self._batches)
        return self.packed

    def _sample_repeats(self, name: str) -> bool:
        """Tell whether a column's first rows repeat; Arrow's functions for that would load all of pyarrow.compute."""
        columns = pa.chunked_array([batch.column(name) for batch in self._batches])
        sample = [value for value in columns.slice(0, _SAMPLE_ROWS).to_pylist() if value is not None]
        return len(set(sample)) <= _REPEATING_MAX * len(sample)

    def table(self, names: Collection[str]) -> pa.Table:
        """Return the rows, their columns in an order; after that none can be added."""
        rest = pa.Table.from_batches(self._batches).unify_dictionaries()
        packed = {name: column.array() for name, column in self._columns.items()}
        return pa.table({name: packed[name] if name in packed else rest.column(name) for name in names})
