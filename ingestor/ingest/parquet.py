"""One Parquet file that is written while its records come, and the Delta statistics that its footer tells."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.delta.table_log import DataFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ingestor.delta.held import Held
    from ingestor.delta.storage import Storage
    from ingestor.ingest.budget import Budget
    from ingestor.ingest.buffer import Batch
    from ingestor.records import RawSchema

# Much smaller row groups cost more CPU; twice as large ones cost as much, and 10 MiB more at the peak.
ROW_GROUP_BYTES = 4 << 20
_BATCHES_MAX = 64  # Arrow takes 5 KB for each, which no budget counts
_ZSTD_LEVEL = 1  # twice the speed of the default level for 5-10 % more bytes
_STATISTICS = ("stream_topic", "stream_partition", "stream_offset", "message_timestamp", "message_timestamp_type")
_DICTIONARY = ("stream_topic", "stream_partition", "message_timestamp_type")
_DELTA_PACKED = ("stream_offset", "message_timestamp")
# A dictionary saves bytes and CPU where values repeat, and costs CPU where they do not: each file's first rows decide.
# Parquet gives up a column's dictionary at 1 MiB in a row group, so what stops repeating costs little more.
_DICTIONARY_IF_REPEATING = ("message_payload", "message_key")
_REPEATING_MAX = 0.75  # distinct values, as a share of those that are not null
_SAMPLE_ROWS = 10_000
# 9999-12-31T23:59:59.999999Z: later timestamps have no ISO form that every reader of statistics understands.
_LAST_PLAIN_MICROS = 253_402_300_799_999_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileWriter:
    """A draft's file: gathers batches to row groups, writes them, tells the file's statistics.

    The encoding worker has it until it is finished, then whoever settles it.
    """

    def __init__(
        self,
        storage: Storage,
        schema: RawSchema,
        path: str,
        compression: str,
        partition_values: Mapping[str, str],
        budget: Budget,
    ) -> None:
        self.failure: BaseException | None = None
        self._storage = storage
        self._schema = schema
        self._path = path
        self._compression = compression
        self._partition_values = partition_values
        self._budget = budget
        self._abandoned = False
        self._batches: list[pa.RecordBatch] = []  # gathered for the next row group
        self._merged = 0  # how many of them are merged ones
        self._gathered_bytes = 0  # as the budget counts them
        self._sink: pa.NativeFile | None = None
        self._held: Held | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._metadata: list[pq.FileMetaData] = []
        self._size = 0
        self.seconds = 0.0

    def abandon(self) -> None:
        """Skip the batches that still wait; called from the poll thread."""
        self._abandoned = True

    def write(self, batch: Batch) -> None:
        """Take a batch in, and write a row group when enough is gathered."""
        if self._abandoned or self.failure is not None:
            self._budget.give_back(batch.memory_bytes)
            return
        self._gathered_bytes += batch.memory_bytes
        self._guarded(lambda: self._gather(batch.records))

    def finish(self) -> None:
        """Write what is left and the footer: after this only `settle` is to come."""
        self._guarded(self._write_row_group)
        self._guarded(self._write_footer)

    def settle(self) -> DataFile:
        """Make the finished file durable; raise whatever went wrong since it was opened.

        This waits for the disk or the store and encodes nothing, so it need not be the worker that does it.
        """
        self._guarded(self._close)
        if self.failure is not None or self._held is None:
            self.abort()
            raise self.failure or AssertionError("a file that was never begun can't be settled")
        return DataFile(
            self._path,
            self._size,
            file_statistics(self._metadata[0]),
            dict(self._partition_values),
            self._held.standing,
        )

    def abort(self) -> None:
        """Close what is open and remove the file."""
        self._drop_gathered()
        for part in (self._parquet, self._sink):
            try:
                if part is not None:
                    part.close()
            except (OSError, ValueError, pa.ArrowException) as error:
                self.failure = self.failure or error
        try:
            if self._held is not None:
                self._held.let_go()
            if self._sink is not None:
                self._storage.discard(self._path)
        except OSError as error:  # an orphan: VACUUM takes it
            self.failure = self.failure or error

    def _guarded(self, step: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        started = time.perf_counter()
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - the poll thread looks at it and decides
            self.failure = error
            self._drop_gathered()
            if self._parquet is not None:
                self._parquet.is_open = False  # else its finalizer closes it once more, and prints a traceback
        self.seconds += time.perf_counter() - started

    def _drop_gathered(self) -> None:
        self._batches, self._merged = [], 0
        self._budget.give_back(self._gathered_bytes)
        self._gathered_bytes = 0

    def _gather(self, records: pa.RecordBatch) -> None:
        self._batches.append(records)
        if len(self._batches) - self._merged == _BATCHES_MAX:
            self._merge()
        next_half = records.nbytes // 2  # polls bring nearly a row group each: as near to its size as whole ones come
        if self._gathered_bytes + next_half >= min(ROW_GROUP_BYTES, self._budget.share):
            self._write_row_group()

    def _merge(self) -> None:
        """Put the batches that came one by one into one: polls may bring a row each, and an hour may pass."""
        small = pa.Table.from_batches(self._batches[self._merged :]).unify_dictionaries().combine_chunks()
        self._batches[self._merged :] = small.to_batches()
        self._merged = len(self._batches)

    def _write_row_group(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches).unify_dictionaries()
        if self._parquet is None:
            self._sink = self._storage.create(self._path)
            self._held = self._storage.hold(self._path)
            self._parquet = parquet_writer(self._sink, table, self._compression, self._metadata)
        self._parquet.write_table(table, row_group_size=table.num_rows)
        del table
        self._drop_gathered()

    def _write_footer(self) -> None:
        if self._parquet is None or self._sink is None:
            msg = "an empty draft can't be sealed"
            raise RuntimeError(msg)
        self._parquet.close()
        self._size = int(self._sink.tell())

    def _close(self) -> None:
        if self._sink is not None and self._held is not None:  # or else finishing has failed
            self._sink.close()
            self._held.settle(self._size)


def parquet_writer(
    sink: pa.NativeFile, first: pa.Table, compression: str, metadata: list[pq.FileMetaData]
) -> pq.ParquetWriter:
    """Return the writer of a file that begins with these rows."""
    codec, _, level = compression.partition(":")
    present = first.schema.names
    repeating = [name for name in _DICTIONARY_IF_REPEATING if name in present and _repeats(first.column(name))]
    return pq.ParquetWriter(
        sink,
        first.schema,
        compression=codec,
        compression_level=int(level) if level else (_ZSTD_LEVEL if codec == "zstd" else None),
        use_dictionary=[name for name in _DICTIONARY if name in present] + repeating,
        column_encoding=dict.fromkeys(_DELTA_PACKED, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in _STATISTICS if name in present],
        store_schema=False,  # Arrow's own schema would call the topic a dictionary; Delta calls it a string
        metadata_collector=metadata,
    )


def _repeats(column: pa.ChunkedArray) -> bool:
    """Tell whether values come again; Arrow's own count would load all of pyarrow.compute."""
    sample = [value for value in column.slice(0, _SAMPLE_ROWS).to_pylist() if value is not None]
    return len(set(sample)) <= _REPEATING_MAX * len(sample)


def file_statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return Delta's statistics of a file from what its Parquet footer says."""
    minima: dict[str, list[Any]] = {}
    maxima: dict[str, list[Any]] = {}
    nulls: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            statistics = column.statistics
            if statistics is None or column.path_in_schema not in _STATISTICS:
                continue
            nulls[column.path_in_schema] = nulls.get(column.path_in_schema, 0) + statistics.null_count
            if statistics.has_min_max:
                minima.setdefault(column.path_in_schema, []).append(statistics.min_raw)
                maxima.setdefault(column.path_in_schema, []).append(statistics.max_raw)
    return {
        "numRecords": metadata.num_rows,
        "minValues": _bounds(minima, min),
        "maxValues": _bounds(maxima, max),
        "nullCount": nulls,
    }


def _bounds(found: Mapping[str, Sequence[Any]], pick: Callable[[Sequence[Any]], Any]) -> dict[str, Any]:
    bounds = {}
    for name, values in found.items():
        value = pick(values)
        if name == "message_timestamp":
            if not 0 <= value <= _LAST_PLAIN_MICROS:
                continue
            moment = _EPOCH + timedelta(microseconds=value)
            value = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        bounds[name] = value.decode() if isinstance(value, bytes) else value
    return bounds
