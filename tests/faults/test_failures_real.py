"""Each failure of storage, provoked for real, and what is made of it: wait and try again, or stop and say why."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trustme
from deltalake import DeltaTable

from ingestor.delta.failures import MESSAGE_LENGTH_MAX, classify
from ingestor.delta.storage import with_defaults
from ingestor.delta.table import RawTable
from ingestor.errors import IngestorError, RefusedError, Unavailable
from ingestor.records import RawSchema
from tests.support.process.server import free_ports
from tests.support.stores.answering import Answering
from tests.support.stores.disk import Disk
from tests.support.stores.faultproxy import Fault, FaultProxy, Kind
from tests.support.stores.s3_commits import QUICK
from tests.support.stores.stores import ACCESS_KEY, SECRET_KEY, VersityStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.stores.stores import Store

pytestmark = pytest.mark.faults

# Where delta-rs would look for credentials if it is given none: nowhere near a cloud's real ones.
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", NOWHERE)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


def failure_of(call: Callable[[], object]) -> IngestorError | Unavailable:
    """Return what is made of a call's failure; whatever it is, it is fit to be shown."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - what it is, is the question
        call()
    found = classify(raised.value, doing="trying")
    message = found.message if isinstance(found, IngestorError) else str(found)
    assert len(message) <= MESSAGE_LENGTH_MAX
    assert message.isprintable()
    assert SECRET_KEY not in message
    assert ACCESS_KEY not in message
    return found


class Place:
    """A table in a store, and the calls that can fail there."""

    def __init__(self, url: str, options: Mapping[str, str], made_with: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.options = with_defaults({**QUICK, **options})
        if made_with is not None:
            RawTable(url, RawSchema(), made_with)

    def open(self) -> object:
        return RawTable(self.url, RawSchema(), self.options)

    def handle(self) -> object:
        return DeltaTable(self.url, storage_options=self.options)


@pytest.fixture
def table(any_store: Store) -> str:
    """The URL of a table in the store."""
    url = any_store.url(any_store.make_bucket())
    RawTable(url, RawSchema(), any_store.storage_options)
    return url


@pytest.fixture
def table_proxy(any_store: Store) -> Iterator[FaultProxy]:
    with FaultProxy(any_store.port) as proxy:
        yield proxy


def refused(found: IngestorError | Unavailable, what: str) -> None:
    assert isinstance(found, RefusedError), found
    assert what in found.message
    assert found.exit_code == 4
    assert found.hint


# --- credentials, buckets, URLs ---


def test_a_wrong_key(versity: VersityStore) -> None:
    """Of a user that the store does not know."""
    url = versity.url(versity.make_bucket())
    options = versity.options(AWS_ACCESS_KEY_ID="nobody")
    refused(failure_of(Place(url, options).open), "the credentials are refused")


def test_a_wrong_secret(versity: VersityStore) -> None:
    """Told without a word of what was signed."""
    url = versity.url(versity.make_bucket())
    found = failure_of(Place(url, versity.options(AWS_SECRET_ACCESS_KEY="wrong"), versity.storage_options).handle)
    refused(found, "the credentials are refused")
    assert "StringToSign" not in str(found)


def test_no_credentials(any_store: Store, table: str) -> None:
    """Neither given nor to be had from a cloud's metadata service."""
    options = {name: value for name, value in any_store.storage_options.items() if "KEY" not in name}
    refused(failure_of(Place(table, options).open), "there are no credentials")


def test_a_missing_bucket(store: Store) -> None:
    """At the first look."""
    refused(failure_of(Place(store.url("no-such-bucket"), store.storage_options).open), "the bucket does not exist")


def test_a_bucket_for_reading_only(versity: VersityStore) -> None:
    """It opens; neither file nor commit can be written."""
    url = versity.url(versity.make_bucket())
    RawTable(url, RawSchema(), versity.storage_options)
    with VersityStore(readonly=True, serves=versity) as store:
        opened = RawTable(url, RawSchema(), store.storage_options)
        refused(failure_of(lambda: opened.storage.create("x")), "access is denied")
        refused(failure_of(lambda: opened.attempt((), {}, {"commit_id": "x"})), "access is denied")


def test_http_where_it_is_not_allowed(any_store: Store, table: str) -> None:
    """delta-rs wants https unless told otherwise."""
    options = any_store.options(AWS_ALLOW_HTTP="false")
    refused(failure_of(Place(table, options).open), "the endpoint is not https")


@pytest.mark.parametrize(
    "url",
    ["foo://bucket/x", "s3://", "s3:///table", "s3:/bucket/x", "s3://buc ket/x", "s3://bucket:port/x", "az://c/x"],
)
def test_a_malformed_url(url: str, any_store: Store) -> None:
    """Unknown schemes too."""
    refused(failure_of(Place(url, any_store.storage_options).handle), "URL or storage_options can't be used")


@pytest.mark.parametrize("option", [{"timeout": "5"}, {"max_retries": "many"}])
def test_a_malformed_option(option: dict[str, str], any_store: Store, table: str) -> None:
    """delta-rs says which."""
    refused(failure_of(Place(table, any_store.options(**option)).open), "URL or storage_options can't be used")


@pytest.mark.parametrize(
    ("url", "options", "what"),
    [
        ("lakefs://repository/branch/table", {}, "URL or storage_options can't be used"),
        ("lakefs://repository/branch/table", {"endpoint": NOWHERE}, "there are no credentials"),
        ("uc://catalog.schema.table", {}, "there are no credentials"),
        ("uc://catalog", {"databricks_host": NOWHERE, "databricks_token": "t"}, "URL or storage_options can't be used"),
    ],
)
def test_a_catalog_without_endpoint_or_credentials(url: str, options: dict[str, str], what: str) -> None:
    """Nothing is asked: what is missing will be missing tomorrow."""
    refused(failure_of(Place(url, options).handle), what)


def s3(port: int) -> Place:
    options = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "r"}
    return Place("s3://bucket/table", {**options, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})


def azure(port: int) -> Place:
    options = {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5"}
    return Place(
        "az://container/table", {**options, "azure_endpoint": f"http://127.0.0.1:{port}", "azure_allow_http": "true"}
    )


def lakefs(port: int) -> Place:
    options = {"endpoint": f"http://127.0.0.1:{port}/api/v1", "allow_http": "true"}
    return Place("lakefs://repository/branch/table", {**options, "access_key_id": "a", "secret_access_key": "b"})


@pytest.mark.parametrize(
    ("place", "status", "code", "what"),
    [
        (azure, 404, "ResourceNotFound", "the bucket does not exist"),
        (azure, 404, "ContainerNotFound", "the bucket does not exist"),
        (azure, 400, "InvalidResourceName", "the store refuses the request"),
        (lakefs, 401, "", "the credentials are refused"),
        (lakefs, 404, "", "the bucket does not exist"),
        (s3, 400, "", "the store refuses the request"),
        (s3, 400, "InvalidArgument", "the store refuses the request"),
        (s3, 400, "ExpiredToken", "the credentials are refused"),
        (s3, 400, "AuthorizationHeaderMalformed", "URL or storage_options can't be used"),
        (s3, 301, "PermanentRedirect", "URL or storage_options can't be used"),
        (s3, 405, "MethodNotAllowed", "the store refuses the request"),
    ],
)
def test_an_answer_that_stays(place: Callable[[int], Place], status: int, code: str, what: str) -> None:
    """Whoever waited for another one would wait for ever."""
    with Answering(status, code) as port:
        refused(failure_of(place(port).open), what)


@pytest.mark.parametrize(
    "code", ["RequestTimeout", "SlowDown", "ThrottlingException", "IncompleteBody", "BadDigest", "InternalError"]
)
def test_a_bad_request_that_passes(code: str) -> None:
    """S3 answers with 400 too when a request came too slowly, too often or not whole."""
    with Answering(400, code) as port:
        assert isinstance(failure_of(s3(port).open), Unavailable)


# --- the network ---


def test_nobody_listens(any_store: Store, table: str) -> None:
    """It may be back in a moment."""
    found = failure_of(Place(table, any_store.options(f"http://127.0.0.1:{free_ports(1)[0]}")).open)
    assert isinstance(found, Unavailable)
    assert "Connection refused" in str(found)


def test_no_such_host(any_store: Store, table: str) -> None:
    """Name servers fail too; who mistyped the name reads it in the log."""
    found = failure_of(Place(table, any_store.options("http://no-such-host.invalid:9000")).open)
    assert isinstance(found, Unavailable)
    assert "dns error" in str(found)


def test_tls_to_a_port_without(any_store: Store, table: str) -> None:
    """Where http is spoken."""
    refused(failure_of(Place(table, any_store.options(f"https://127.0.0.1:{any_store.port}")).open), "TLS fails")


def test_a_certificate_that_nobody_vouches_for(versity: VersityStore, tmp_path: Path) -> None:
    """It is refused; with its authority's certificate the same store serves."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, root = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "root.pem"
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(root)
    url = versity.url(versity.make_bucket())
    with VersityStore(serves=versity, tls=(chain, key)) as store:
        refused(failure_of(Place(url, store.storage_options).open), "TLS fails")
        assert Place(url, store.options(certificate_path=str(root))).open()


@pytest.mark.parametrize("status", [409, 412, 429, 500, 502, 503, 504])
def test_a_status_that_passes(status: int, any_store: Store, table: str, table_proxy: FaultProxy) -> None:
    """In reading, in writing a file and in committing."""
    opened = RawTable(table, RawSchema(), with_defaults({**QUICK, **any_store.options(table_proxy.url)}))
    table_proxy.on("*", r"0\.json|parquet|1\.json", Fault(Kind.STATUS_BEFORE, status=status), times=None)
    for call in (
        lambda: opened.storage.read("_delta_log/00000000000000000000.json"),
        lambda: _write_file(opened),
        lambda: opened.attempt((), {}, {"commit_id": "x"}),
    ):
        found = failure_of(call)
        assert isinstance(found, Unavailable), found


@pytest.mark.parametrize("status", [401, 403, 501])
def test_a_status_that_stays(status: int, any_store: Store, table: str, table_proxy: FaultProxy) -> None:
    """In reading, in writing a file and in committing."""
    opened = RawTable(table, RawSchema(), with_defaults({**QUICK, **any_store.options(table_proxy.url)}))
    table_proxy.on("*", r"0\.json|parquet|1\.json", Fault(Kind.STATUS_BEFORE, status=status), times=None)
    for call in (
        lambda: _write_file(opened),
        lambda: opened.attempt((), {}, {"commit_id": "x"}),
    ):
        assert isinstance(failure_of(call), RefusedError)


@pytest.mark.parametrize(
    "kind",
    [Kind.RESET_BEFORE, Kind.RESET_AFTER, Kind.HANG_BEFORE, Kind.HANG_AFTER, Kind.HALF_OPEN, Kind.TRICKLE],
)
def test_a_bad_line(kind: Kind, any_store: Store, table: str, table_proxy: FaultProxy) -> None:
    """However it is bad, it may be better later."""
    opened = RawTable(table, RawSchema(), with_defaults({**QUICK, **any_store.options(table_proxy.url)}))
    table_proxy.on("PUT", r"1\.json", Fault(kind, seconds=3), times=None)
    found = failure_of(lambda: opened.attempt((), {}, {"commit_id": "x"}))
    assert isinstance(found, Unavailable)


def _write_file(table: RawTable) -> None:
    with table.storage.create("x.parquet") as sink:
        pq.write_table(pa.table({"a": [os.urandom(6 << 20)]}), sink, compression="none")


# --- a local disk ---

# What a process of its own does there: it may not write, or not so much.
_TRY = """
import sys
from ingestor.delta.failures import classify
from ingestor.records import RawSchema
from ingestor.delta.table import RawTable
import pyarrow as pa, pyarrow.parquet as pq, resource, signal
what, path, limit = sys.argv[1:]
try:
    if what == "create":
        RawTable(path, RawSchema(), {})
    else:
        table = RawTable(path, RawSchema(), {})
        print("opened", file=sys.stderr)
        if limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
        if what == "stage":
            with table.storage.create("x.parquet") as sink:
                pq.write_table(pa.table({"a": [bytes(1 << 20)]}), sink, compression="none", use_dictionary=False)
        else:
            table.attempt((), {}, {"commit_id": "x" * 100_000})
except Exception as error:
    found = classify(error, doing="trying")
    print(type(found).__name__, found)
"""


# Root may write everywhere, unless it gives up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (24: PR_CAPBSET_DROP).
_BOUND = (
    "import ctypes, os, sys; prctl = ctypes.CDLL(None).prctl; prctl(24, 1, 0, 0, 0); prctl(24, 2, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
BOUND_BY_PERMISSIONS = () if os.geteuid() else (sys.executable, "-c", _BOUND)


def tried(what: str, path: Path, *, under: tuple[str, ...] = (), limit: int | str = "") -> str:
    """Return what is made of a failure that another process has."""
    command = [*under, sys.executable, "-c", _TRY, what, str(path), str(limit)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_a_full_disk(tmp_path: Path) -> None:
    """Neither file nor commit fits."""
    with Disk(tmp_path / "disk", size="1m") as disk:
        assert tried("commit", disk.folder / "table", under=disk.under) == ""
        disk.leave(free_bytes=8 << 10)
        for what in ("stage", "commit"):
            assert tried(what, disk.folder / "table", under=disk.under).startswith(
                "RefusedError trying: the disk is full"
            )


def test_a_disk_for_reading_only(tmp_path: Path) -> None:
    """It opens; nothing can be written."""
    with Disk(tmp_path / "disk", size="1m") as disk:
        assert tried("commit", disk.folder / "table", under=disk.under) == ""
        disk.remount("ro")
        for what in ("stage", "commit"):
            said = tried(what, disk.folder / "table", under=disk.under)
            assert said.startswith("RefusedError trying: the file system is read-only")


def test_a_folder_for_reading_only(tmp_path: Path) -> None:
    """For a user whom permissions bind."""
    path = tmp_path / "table"
    RawTable(str(path), RawSchema(), {})
    (path / "_delta_log").chmod(0o555)
    path.chmod(0o555)
    try:
        for what in ("stage", "commit"):
            said = tried(what, path, under=BOUND_BY_PERMISSIONS)
            assert said.startswith("RefusedError trying: access is denied")
        assert "access is denied" in tried("create", path / "below", under=BOUND_BY_PERMISSIONS)
    finally:
        path.chmod(0o755)
        (path / "_delta_log").chmod(0o755)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """As `ulimit -f` sets one."""
    assert resource.RLIMIT_FSIZE
    for what in ("stage", "commit"):
        said = tried(what, tmp_path / what, limit=50_000)
        assert said.startswith("RefusedError trying: a file reached the size limit")


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Removed, moved or unmounted below a table that was open: waiting would bring nothing back."""
    table = RawTable(str(tmp_path / "lake" / "table"), RawSchema(), {})
    shutil.rmtree(tmp_path / "lake")
    refused(failure_of(table.refresh), "was replaced or its log cut off")
    refused(failure_of(lambda: table.settle(1)), "a file or folder of the table is gone")
    assert not (tmp_path / "lake").exists()


def test_a_path_below_a_file(tmp_path: Path) -> None:
    """It can't become a folder."""
    (tmp_path / "file").touch()
    assert tried("create", tmp_path / "file" / "table").startswith("RefusedError")
