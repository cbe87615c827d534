"""Files in an object store: streamed in parts, cleaned up where that can be done, and no thread held up by silence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingestor.delta.failures import classify
from ingestor.delta.storage import ObjectStorage, with_defaults
from ingestor.delta.table import RawTable
from ingestor.errors import Unavailable
from ingestor.records import RawSchema
from tests.support.process.background import Background
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.s3_commits import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.stores.stores import Store

pytestmark = pytest.mark.faults

MIB = 1 << 20
PART_BYTES = 5 * MIB  # delta-rs's


def storage_of(url: str, options: dict[str, str]) -> ObjectStorage:
    """Return a table's files as the table opens them."""
    storage = RawTable(url, RawSchema(), options).storage
    assert isinstance(storage, ObjectStorage)
    return storage


@pytest.fixture
def storage(store: Store, bucket: str, proxy: FaultProxy) -> ObjectStorage:
    return storage_of(store.url(bucket), with_defaults({**QUICK, **store.options(proxy.url)}))


def random_table(size: int) -> pa.Table:
    """Return a table of bytes that can't be compressed."""
    noise = np.random.default_rng(1).bytes(size)
    return pa.table({"a": [noise[at : at + 1000] for at in range(0, size, 1000)]})


# --- reading ---


def test_an_object_is_read_in_one_request(storage: ObjectStorage, proxy: FaultProxy) -> None:
    """Its size need not be asked for first."""
    proxy.clear()
    entry = storage.read("_delta_log/00000000000000000000.json")
    assert entry is not None
    assert b'"metaData"' in entry
    assert [seen.method for seen in proxy.seen] == ["GET"]


def test_objects_of_any_size_are_read_whole(store: Store, bucket: str, storage: ObjectStorage) -> None:
    """None at all, an empty one, and one of many megabytes."""
    for size in (0, 1, 20 * MIB):
        store.client().put_object(Bucket=bucket, Key="table/object", Body=b"x" * size)
        assert storage.read("object") == b"x" * size
        assert storage.exists("object")
        with storage.open_input("object") as source:
            assert source.size() == size
    assert storage.read("nothing") is None
    assert not storage.exists("nothing")
    with pytest.raises(FileNotFoundError):
        storage.open_input("nothing")
    assert storage.list("_delta_log") == ["00000000000000000000.json"]
    assert storage.list("no_such_folder") == []


def test_a_bucket_that_is_gone_is_no_missing_object(store: Store) -> None:
    """Whoever looks whether a log entry landed must not hear that there is none."""
    bucket = store.make_bucket()
    storage = storage_of(store.url(bucket), with_defaults(store.storage_options))
    client = store.client()
    for key in store.objects(bucket):
        client.delete_object(Bucket=bucket, Key=key)
    client.delete_bucket(Bucket=bucket)
    with pytest.raises(OSError, match="NoSuchBucket"):
        storage.read("_delta_log/00000000000000000000.json")


# --- nobody else is held up ---


class Pulse(Background):
    """Beats while the `with` block runs; `silence` is the longest time between two beats."""

    def __init__(self) -> None:
        super().__init__(self._beat)
        self.silence = 0.0

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._ending.wait(0.01):
            now = time.monotonic()
            self.silence, last = max(self.silence, now - last), now


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    with Pulse() as beating:
        yield beating


CALLS: dict[str, Callable[[ObjectStorage], object]] = {
    "read": lambda storage: storage.read("_delta_log/00000000000000000000.json"),
    "list": lambda storage: storage.list("_delta_log"),
    "exists": lambda storage: storage.exists("x"),
    "open": lambda storage: storage.open_input("_delta_log/00000000000000000000.json"),
    "create": lambda storage: storage.create("x"),
    "discard": lambda storage: storage.discard("x"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_silent_store_holds_up_the_caller_only(
    call: Callable[[ObjectStorage], object], any_store: Store, pulse: Pulse
) -> None:
    """Polling and HTTP go on, though delta-rs keeps Python's lock in some of its calls."""
    with FaultProxy(any_store.port) as proxy:
        options = {**QUICK, **any_store.options(proxy.url), "timeout": "1500ms"}
        storage = storage_of(any_store.url(any_store.make_bucket()), with_defaults(options))
        proxy.silence()
        pulse.silence = 0.0
        started = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            call(storage)
        assert time.monotonic() - started >= 1.4
        assert pulse.silence < 1.0


# --- writing ---


def test_a_large_file_is_uploaded_while_it_is_written(any_store: Store) -> None:
    """200 MB go up in parts of 5 MiB; hardly any of it is ever in memory."""
    bucket = any_store.make_bucket()
    storage = storage_of(any_store.url(bucket), with_defaults(any_store.storage_options))
    chunk = random_table(8 * MIB)
    process = psutil.Process()
    sink = storage.create("large.parquet")
    writer = pq.ParquetWriter(sink, chunk.schema, compression="none", use_dictionary=False, write_statistics=False)
    writer.write_table(chunk)
    before = process.memory_info().rss
    highest = before
    for count in range(2, 26):
        writer.write_table(chunk)
        highest = max(highest, process.memory_info().rss)
        if count == 12:
            uploading = any_store.client().list_multipart_uploads(Bucket=bucket)["Uploads"]
            assert [upload["Key"] for upload in uploading] == ["table/large.parquet"]
            parts = any_store.client().list_parts(
                Bucket=bucket, Key="table/large.parquet", UploadId=uploading[0]["UploadId"]
            )["Parts"]
            assert len(parts) >= 12 * 8 * MIB // PART_BYTES - 2
    writer.close()
    size = sink.tell()
    sink.close()
    assert size > 200_000_000
    assert any_store.objects(bucket)["table/large.parquet"] == size
    assert any_store.uploads(bucket) == []
    assert highest - before < 64 * MIB


def written(storage: ObjectStorage, size: int) -> pq.ParquetWriter:
    """Begin a file of that size, and leave it open."""
    sink = storage.create("file.parquet")
    table = random_table(size)
    writer = pq.ParquetWriter(sink, table.schema, compression="none", use_dictionary=False)
    writer.write_table(table)
    writer.sink = sink
    return writer


def test_a_discarded_file_leaves_nothing(store: Store, bucket: str, storage: ObjectStorage) -> None:
    """Neither object nor upload, whether it was begun or finished."""
    writer = written(storage, 12 * MIB)
    assert store.uploads(bucket) == ["table/file.parquet"]
    writer.close()
    writer.sink.close()
    storage.discard("file.parquet")
    assert "table/file.parquet" not in store.objects(bucket)
    assert store.uploads(bucket) == []
    storage.discard("file.parquet")


def test_a_part_that_fails_for_good_aborts_the_upload(
    store: Store, bucket: str, storage: ObjectStorage, proxy: FaultProxy
) -> None:
    """delta-rs sees to that; nothing is left."""
    proxy.on("PUT", "partNumber=2", Fault(Kind.STATUS_BEFORE, status=503), times=None)
    with pytest.raises(OSError, match="503") as failed:
        written(storage, 12 * MIB)
    assert "503 Service Unavailable" in str(classify(failed.value, doing="writing"))
    assert "table/file.parquet" not in store.objects(bucket)
    assert store.uploads(bucket) == []


def test_a_part_whose_answer_is_lost_is_sent_again(
    store: Store, bucket: str, storage: ObjectStorage, proxy: FaultProxy
) -> None:
    """The file is whole."""
    proxy.on("PUT", "partNumber=1", Fault(Kind.RESET_AFTER))
    proxy.on("PUT", "partNumber=2", Fault(Kind.STATUS_AFTER, status=500))
    proxy.on("PUT", "partNumber=3", Fault(Kind.TRUNCATE))
    writer = written(storage, 18 * MIB)
    writer.close()
    writer.sink.close()
    assert proxy.hits == 3
    with storage.open_input("file.parquet") as source:
        assert pq.read_table(source).equals(random_table(18 * MIB))
    assert store.uploads(bucket) == []


def test_an_upload_that_has_ended_meanwhile_passes(store: Store, bucket: str, storage: ObjectStorage) -> None:
    """Whether it was aborted or its end was not heard of: the file is written anew, no table is gone."""
    writer = written(storage, 12 * MIB)
    client = store.client()
    upload = client.list_multipart_uploads(Bucket=bucket)["Uploads"][0]
    client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def end() -> None:
        writer.close()
        writer.sink.close()

    with pytest.raises(OSError, match="NoSuchUpload") as failed:
        end()
    assert isinstance(classify(failed.value, doing="writing"), Unavailable)
    assert "table/file.parquet" not in store.objects(bucket)


def test_a_killed_process_leaves_parts_that_a_lifecycle_rule_removes(
    store: Store, bucket: str, storage: ObjectStorage
) -> None:
    """What was sent before stays as an unfinished upload: no object, seen in no listing, and paid for.

    Nobody but the bucket's own rule can tell that it will never be finished; see docs/configuration.md.
    """
    writer = written(storage, 12 * MIB)
    unfinished = store.uploads(bucket)  # a kill would come now
    assert unfinished == ["table/file.parquet"]
    assert "table/file.parquet" not in store.objects(bucket)
    writer.close()
    writer.sink.close()
