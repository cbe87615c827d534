"""Quix Streams, Kafka to Parquet files: so many records of a topic. Runs in an environment of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from quixstreams import Application  # type: ignore[import-not-found]  # is not in our environment
from quixstreams.sinks.community.file.formats import ParquetFormat  # type: ignore[import-not-found]
from quixstreams.sinks.community.file.local import LocalFileSink  # type: ignore[import-not-found]

_CHECKPOINT_RECORDS = 100_000  # what a file holds at most, in all of its partitions
_SILENCE_SECONDS_MAX = 20.0


def main(bootstrap: str, topic: str, folder: str, records: str) -> None:
    """Write the records' payloads; the sink itself adds timestamp and key."""
    Path(folder).mkdir()
    os.chdir(folder)  # the sink takes no path with a dash in it
    app = Application(
        broker_address=bootstrap,
        consumer_group=Path(folder).name,
        auto_offset_reset="earliest",
        commit_every=_CHECKPOINT_RECORDS,
        commit_interval=60.0,
        state_dir="state",
        consumer_extra_config={"isolation.level": "read_committed"},
        loglevel="WARNING",
    )
    source = app.topic(topic, value_deserializer="bytes", key_deserializer="bytes")
    rows = app.dataframe(source).apply(lambda value: {"payload": value})
    rows.sink(LocalFileSink(directory="files", format=ParquetFormat(compression="zstd")))
    app.run(count=int(records), timeout=_SILENCE_SECONDS_MAX)


if __name__ == "__main__":
    main(*sys.argv[1:])
