"""The independent check of a `FakeLog`: whether it holds exactly what the `FakeKafka` committed.

Looks at each log entry once, when it is new, and shares no code with the ingestor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.fakes.kafka import FakeKafka
    from tests.support.fakes.storage import MemoryStorage
    from tests.support.fakes.table import FakeEntry, FakeLog


class Judge:
    """Follows a log and holds it against the records that were committed."""

    def __init__(self, log: FakeLog, storage: MemoryStorage, kafka: FakeKafka, *, app_id: str) -> None:
        self.rows: dict[TopicPartition, dict[int, bytes | None]] = {tp: {} for tp in kafka.partitions}
        self.lost: dict[TopicPartition, set[int]] = {tp: set() for tp in kafka.partitions}
        self.txns: dict[TopicPartition, int] = {}
        self._log = log
        self._storage = storage
        self._kafka = kafka
        self._names = {f"{app_id}/{tp.topic}/{tp.partition}": tp for tp in kafka.partitions}
        self._looked_at = 0
        self._files: set[str] = set()

    def check(self) -> None:
        """Assert what must hold at any moment."""
        for entry in self._log.entries[self._looked_at :]:
            self._check_entry(entry)
            self._looked_at += 1
        for tp, txn in self.txns.items():
            committed = {offset for offset in self._kafka.committed(tp) if offset <= txn}
            missing = committed - self.rows[tp].keys() - self.lost[tp]
            assert not missing, f"{tp}: {sorted(missing)} are missing, the txn is {txn}"

    def check_all_landed(self) -> None:
        """Assert what must hold when all has come to rest: nothing is left behind."""
        self.check()
        for tp in self._kafka.partitions:
            left = self._kafka.committed(tp).keys() - self.rows[tp].keys() - self.lost[tp]
            low = self._kafka.partitions[tp].low
            left -= {offset for offset in left if offset < low}  # never seen; a gap is only told beside rows
            assert not left, f"{tp}: {sorted(left)} never landed"

    def _check_entry(self, entry: FakeEntry) -> None:
        moved = {self._names[name]: txn for name, txn in entry.txns.items() if name in self._names}
        found = self._rows_of(entry)
        if entry.commit_id:
            partitions = {name for name in entry.txns if not name.startswith("ingestor:")}
            assert partitions <= self._names.keys(), f"{partitions} are not all ours"
            assert moved.keys() == found.keys(), f"version {entry.version}: rows and txns of different partitions"
        for tp, txn in moved.items():
            before = self.txns.get(tp, -1)
            assert txn > before, f"version {entry.version}: the txn of {tp} goes from {before} to {txn}"
            offsets = [offset for offset, _ in found.get(tp, [])]
            assert offsets == sorted(set(offsets)), f"version {entry.version}: {tp} is out of order: {offsets}"
            assert all(before < offset <= txn for offset in offsets), (
                f"version {entry.version}: {tp} {offsets} lie outside of ({before}, {txn}]"
            )
            if tp not in self.txns:  # nothing was ever committed: it began where Kafka's records begin
                self.lost[tp] |= set(range(min([*offsets, self._kafka.partitions[tp].low])))
            self.txns[tp] = txn
        self._check_values(found)
        self._take_gaps(entry)

    def _check_values(self, found: Mapping[TopicPartition, list[tuple[int, bytes | None]]]) -> None:
        for tp, rows in found.items():
            readable = self._kafka.partitions[tp].readable
            for offset, value in rows:
                assert offset not in self.rows[tp], f"{tp} offset {offset} stands twice"
                assert offset in readable, f"{tp} offset {offset} was never committed"
                assert value == readable[offset].value, f"{tp} offset {offset} has another value"
                self.rows[tp][offset] = value

    def _take_gaps(self, entry: FakeEntry) -> None:
        for gap in entry.info.get("gaps", ()):
            tp = TopicPartition(gap["topic"], gap["partition"])
            offsets = set(range(gap["first"], gap["last"] + 1))
            assert offsets.isdisjoint(self.rows[tp]), f"{tp}: {gap} is declared lost, but is there"
            assert gap["last"] < self._kafka.partitions[tp].low, f"{tp}: {gap} is declared lost, but Kafka has it"
            self.lost[tp] |= offsets

    def _rows_of(self, entry: FakeEntry) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
        found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        for file in entry.files:
            assert file.path not in self._files, f"{file.path} was added twice"
            self._files.add(file.path)
            data = self._storage.files.get(file.path)
            assert data is not None, f"{file.path} is in the log, but gone"
            assert len(data) == file.size, f"{file.path} has another size than the log says"
            rows = pq.read_table(pa.BufferReader(data)).to_pylist()
            assert len(rows) == file.stats["numRecords"], f"{file.path} has other rows than the log says"
            for row in rows:
                tp = TopicPartition(row["stream_topic"], row["stream_partition"])
                found.setdefault(tp, []).append((row["stream_offset"], row["message_payload"]))
        return found
