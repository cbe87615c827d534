"""Stores that check `If-None-Match` and then write, in two steps: two writers of one entry may both win.

None may be committed to. Two of them come from registries, as people get them; they are fetched or built once, into the
user's cache.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.process.server import free_ports
from tests.support.stores.stores import ACCESS_KEY, SECRET_KEY, MotoStore, Store
from tests.support.tools import cache
from tests.support.tools.ivy import java

if TYPE_CHECKING:
    from collections.abc import Sequence

S3MOCK_VERSION = "5.2.0"
S3S_VERSION = "0.14.1"
_BUILD_SECONDS_MAX = 900
_IVY = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="ingestor" module="racy-store"/>
  <dependencies>
    <dependency org="com.adobe.testing" name="s3mock" rev="{S3MOCK_VERSION}" transitive="false">
      <artifact name="s3mock" type="jar" ext="jar" m:classifier="exec"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class RacyStoreUnavailableError(Exception):
    """The store can't be had on this machine; the message says what is missing."""


class TwoStepStore(MotoStore):
    """moto's S3 that looks whether the object is there, and writes it a moment later."""

    name = "two-steps"
    window_seconds = 0.01

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), "--two-steps", str(self.window_seconds)]


class S3MockStore(Store):
    """Adobe's S3Mock, from Maven."""

    name = "s3mock"
    durable = False

    def __init__(self) -> None:
        self._jar = _s3mock()
        super().__init__()

    def _command(self) -> Sequence[str | Path]:
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
        ports = [f"--server.port={free_ports(1)[0]}", f"--http.port={self.port}"]
        ports.append(f"--com.adobe.testing.s3mock.controller.http-port={self.port}")
        return [java(), *quick, f"-Djava.io.tmpdir={self._folder}", "-jar", self._jar, *ports]


class S3sStore(Store):
    """The S3 server of the Rust crate s3s-fs."""

    name = "s3s-fs"
    durable = True

    def __init__(self) -> None:
        self._program = _s3s()
        super().__init__()

    def _command(self) -> Sequence[str | Path]:
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        return [self._program, "--host", "127.0.0.1", "--port", str(self.port), *keys, data]


def _s3mock() -> Path:
    """Return S3Mock's jar, fetched now if it never was; it appears complete or not at all."""
    jar = cache.root() / f"s3mock-{S3MOCK_VERSION}-exec.jar"
    with cache.locked(jar.with_suffix(".lock")):
        if not jar.exists():
            with tempfile.TemporaryDirectory(dir=cache.root(), prefix="download-") as name:
                work = Path(name)
                (work / "ivy.xml").write_text(_IVY)
                ivy: list[str | Path] = [java(), "-jar", _ivy(), "-ivy", work / "ivy.xml", "-warn"]
                pattern = f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"
                _run([*ivy, "-cache", work / "ivy", "-retrieve", pattern])
                next((work / "jars").glob("*.jar")).rename(jar)
    return jar


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RacyStoreUnavailableError("the Ivy that fetches S3Mock ships inside pyspark, which is missing")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _s3s() -> Path:
    """Return s3s-fs, built now if it never was; it appears complete or not at all."""
    target = cache.root() / f"s3s-fs-{S3S_VERSION}" / "s3s-fs"
    with cache.locked(target.parent.with_name(f"{target.parent.name}.lock")):
        if not target.exists():
            cargo = shutil.which("cargo")
            if cargo is None:
                raise RacyStoreUnavailableError("s3s-fs is built with cargo, which is not in PATH")
            with tempfile.TemporaryDirectory(dir=cache.root(), prefix="build-") as name:
                command = [cargo, "install", "s3s-fs", "--version", S3S_VERSION, "--features", "binary", "--locked"]
                _run([*command, "--root", name])
                target.parent.mkdir(exist_ok=True)
                (Path(name) / "bin" / "s3s-fs").rename(target)
    return target


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS_MAX)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise RacyStoreUnavailableError(f"{Path(command[0]).name} failed; is the network up?\n{tail}")
