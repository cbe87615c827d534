"""S3 stores of our own on free loopback ports, for tests that stop, kill and hold them still.

    with MotoStore() as store:
        bucket = store.make_bucket()
        RawTable(store.url(bucket), schema, store.storage_options)

Neither process nor folder outlives the test run, even one that ends by SIGKILL.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import boto3
from botocore.config import Config

from tests.support import moto_store, versitygw
from tests.support.kafka import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
REGION = "us-east-1"
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0

# $0: folder of the store. A line on stdin: all was closed; its end: the parent died.
_GUARD = """\
read -r _ && exit
kill -s KILL -- "-$(cat "$0/pid")"
rm -rf "$0" || { sleep 1; rm -rf "$0"; }
"""


class Store(ABC):
    """One S3 store; its port stays the same over restarts."""

    name: ClassVar[str]
    durable: ClassVar[bool]  # whether what it holds outlives `kill` and `stop`

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self._folder = Path(tempfile.mkdtemp(prefix=f"ingestor-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return the command that serves on `port`."""

    def _environ(self) -> Mapping[str, str]:
        return {}

    @property
    def endpoint(self) -> str:
        """The store's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, str]:
        """What delta-rs needs to reach the store."""
        return self.options()

    def options(self, endpoint: str | None = None, **more: str) -> dict[str, str]:
        """Return storage_options with another endpoint, as of a proxy, or with more in them."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
            **more,
        }

    def make_bucket(self, name: str | None = None) -> str:
        """Make a bucket, by default one that no other test knows; return its name."""
        bucket = name or f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=bucket)
        return bucket

    @staticmethod
    def url(bucket: str, path: str = "table") -> str:
        """Return the URL of a path in a bucket."""
        return f"s3://{bucket}/{path}"

    def client(self) -> Any:
        """Return boto3's client, which sees the store without delta-rs and without proxy."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def objects(self, bucket: str, prefix: str = "") -> dict[str, int]:
        """Return the size of each object in a bucket, by key."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {each["Key"]: each["Size"] for page in pages for each in page.get("Contents", ())}

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of the multipart uploads that nobody completed or aborted."""
        return [each["Key"] for each in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", ())]

    def read(self, bucket: str, key: str) -> bytes:
        """Return an object."""
        content: bytes = self.client().get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    @property
    def running(self) -> bool:
        """Whether the process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, unless it runs, and wait until it serves."""
        if not self.running:
            with (self._folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", 'echo $$ >"$0/pid"; exec "$@"', self._folder, *self._command()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self._environ()},
                    start_new_session=True,
                )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                tail = (self._folder / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} does not serve; its log ends:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process in order (SIGTERM)."""
        self.resume()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """End the process as a power cut would (SIGKILL)."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None

    def pause(self) -> None:
        """Hold the process still (SIGSTOP): connections are taken, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the process and remove all that it held."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._guard.communicate(b"closed\n", timeout=STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        connection = self._connection()
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)


class MotoStore(Store):
    """moto's S3 with writes one at a time: conditional PUT has one winner. It forgets all when its process ends."""

    name = "moto"
    durable = False

    def _command(self) -> Sequence[str | Path]:
        return [sys.executable, moto_store.__file__, str(self.port)]


class CarelessStore(MotoStore):
    """moto's S3 without conditional PUT: whoever writes last wins. Nobody may commit here."""

    name = "careless"

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), "--ignore-if-none-match"]


class VersityStore(Store):
    """versitygw over a folder: real signatures, honest conditional PUT, and all is kept over restarts."""

    name = "versitygw"
    durable = True

    def __init__(self, *, readonly: bool = False, serves: VersityStore | None = None, tls: Sequence[Path] = ()) -> None:
        """Serve a folder of its own or, beside another gateway, that one's; `tls` is a certificate and its key."""
        self._gateway = versitygw.build()
        self._readonly = readonly
        self._tls = tls
        super().__init__()
        self.data: Path = serves.data if serves else self._folder / "data"
        self.data.mkdir(exist_ok=True)

    def _command(self) -> Sequence[str | Path]:
        flags: list[str | Path] = ["--quiet", "--port", f"127.0.0.1:{self.port}"]
        flags += ["--readonly"] if self._readonly else []
        if self._tls:
            flags += ["--cert", self._tls[0], "--key", self._tls[1]]
        return [self._gateway, *flags, "posix", self.data]

    def _environ(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}

    @property
    def endpoint(self) -> str:
        """The gateway's address: https if it has a certificate."""
        return super().endpoint.replace("http:", "https:") if self._tls else super().endpoint

    def _connection(self) -> http.client.HTTPConnection:
        if not self._tls:
            return super()._connection()
        whoever = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # only asks whether it serves
        whoever.check_hostname = False
        whoever.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=whoever)
