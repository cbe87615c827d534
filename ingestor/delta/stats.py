"""Which rows the files of a table hold: by their statistics as far as those tell, else by reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ingestor.delta.deltalog import AddedFile
from ingestor.delta.failures import classify
from ingestor.delta.open import options_for
from ingestor.records import COORDINATES, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ingestor.delta.storage import Storage


def last_offsets(handle: DeltaTable, storage: Storage, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the greatest offset of each of the partitions that has rows."""
    found: dict[TopicPartition, int] = {}
    for tp, offset in _rows(handle, storage, lambda bounds: any(map(bounds.may_hold, tps))):
        if tp in tps:
            found[tp] = max(offset, found.get(tp, offset))
    return found


def other_topics(handle: DeltaTable, storage: Storage, tps: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    """Return for each of the partitions another topic that has rows of the same partition number."""
    found: dict[TopicPartition, str] = {}
    for other, _ in _rows(handle, storage, lambda bounds: any(map(bounds.may_hold_another_topic_than, tps))):
        found.update({tp: other.topic for tp in tps if tp.partition == other.partition and tp.topic != other.topic})
    return found


def _rows(
    handle: DeltaTable, storage: Storage, wanted: Callable[[_Bounds], bool]
) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the greatest offset of each partition of each file whose statistics are of interest."""
    for path, bounds in _partition_bounds(handle):
        if wanted(bounds):
            with storage.open_input(unquote(path)) as source:
                yield from _last_offsets_in(source)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least and the greatest topic and partition of a file; None where its statistics don't tell."""

    topics: tuple[str, str] | None
    partitions: tuple[int, int] | None

    def may_hold(self, tp: TopicPartition) -> bool:
        return (self.topics is None or self.topics[0] <= tp.topic <= self.topics[1]) and (
            self.partitions is None or self.partitions[0] <= tp.partition <= self.partitions[1]
        )

    def may_hold_another_topic_than(self, tp: TopicPartition) -> bool:
        return self.topics != (tp.topic, tp.topic) and (
            self.partitions is None or self.partitions[0] <= tp.partition <= self.partitions[1]
        )


def _partition_bounds(handle: DeltaTable) -> Iterator[tuple[str, _Bounds]]:
    columns = pa.table(handle.get_add_actions(flatten=True)).to_pydict()
    nothing = [None] * len(columns["path"])
    topics = [columns.get(f"{end}.stream_topic", nothing) for end in ("min", "max")]
    partitions = [columns.get(f"{end}.stream_partition", nothing) for end in ("min", "max")]
    for path, *ends in zip(columns["path"], *topics, *partitions, strict=True):
        known = [None if None in pair else tuple(pair) for pair in (ends[:2], ends[2:])]
        yield path, _Bounds(*known)


def _last_offsets_in(source: pa.NativeFile) -> Iterator[tuple[TopicPartition, int]]:
    for batch in pq.ParquetFile(source).iter_batches(columns=list(COORDINATES)):
        keys = ["stream_topic", "stream_partition"]
        for row in pa.Table.from_batches([batch]).group_by(keys).aggregate([("stream_offset", "max")]).to_pylist():
            yield TopicPartition(row["stream_topic"], row["stream_partition"]), row["stream_offset_max"]


def live_files(uri: str, storage_options: Mapping[str, str], version: int) -> Iterator[AddedFile]:
    """Yield the data files of a version, with their row counts and the ranges of their coordinates."""
    try:
        handle = DeltaTable(uri, version=version, storage_options=options_for(uri, storage_options))
        actions = pa.table(handle.get_add_actions(flatten=True))
    except (DeltaError, OSError) as error:
        raise classify(error, doing=f"reading version {version} of table {uri}") from error
    wanted = ["path", "size_bytes", "num_records"]
    wanted += [f"{end}.{name}" for end in ("min", "max") for name in COORDINATES]
    narrow = actions.select([name for name in wanted if name in actions.column_names])
    for batch in narrow.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            stats = {
                "numRecords": row.get("num_records"),
                "minValues": {name: row.get(f"min.{name}") for name in COORDINATES},
                "maxValues": {name: row.get(f"max.{name}") for name in COORDINATES},
            }
            yield AddedFile(row["path"], row["size_bytes"], {}, stats)
