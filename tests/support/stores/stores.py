"""S3 stores of our own on free loopback ports, for tests that stop, kill and hold them still.

    with MotoStore() as store:
        bucket = store.make_bucket()
        RawTable(store.url(bucket), schema, store.storage_options)

Neither process nor folder outlives the test run, even one that ends by SIGKILL.
"""

from __future__ import annotations

import http.client
import ssl
import sys
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Self

import boto3
from botocore.config import Config

from tests.support.process.server import Home, Server, free_ports
from tests.support.stores import moto_store, versitygw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
REGION = "us-east-1"


class Store(Server):
    """One S3 store; its port stays the same over restarts."""

    name: ClassVar[str]
    durable: ClassVar[bool]  # whether what it holds outlives `kill` and `stop`

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self._home = Home(self.name)
        super().__init__(self._home.path)

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

    def close(self) -> None:
        """Kill the process and remove all that it held."""
        self.kill()
        self._home.remove()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
