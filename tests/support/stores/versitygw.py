"""Builds versitygw, an S3 gateway over a folder, once into the user's cache.

It is the store with honest conditional PUT and real signatures; moto's are simpler. Only Go is needed, and only once.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.tools import cache

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
BUILD_SECONDS_MAX = 900


class StoreUnavailableError(Exception):
    """The store can't run on this machine; the message says what is missing."""


def executable() -> Path:
    """Return where the gateway is, or will be."""
    return cache.root() / f"versitygw-{VERSION}" / "versitygw"


def build(announce: Callable[[str], None] = print) -> Path:
    """Return the gateway; the first time in a user's life, build it. The file appears complete or not at all."""
    target = executable()
    if target.exists():
        return target
    with cache.locked(target.parent.with_name(f"{target.parent.name}.lock")):
        if not target.exists():
            _build(target, announce)
    return target


def _build(target: Path, announce: Callable[[str], None]) -> None:
    go = shutil.which("go")
    if go is None:
        raise StoreUnavailableError("versitygw, an S3 store for tests, is built with go, which is not in PATH")
    announce(f"building versitygw {VERSION} (once; takes 2 to 5 minutes) ...")
    with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix="build-") as name:
        environ = {**os.environ, "GOBIN": name}
        command = [go, "install", "-ldflags=-s -w", f"{MODULE}@{VERSION}"]
        try:
            run = subprocess.run(
                command, env=environ, cwd=name, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
            )
        except subprocess.TimeoutExpired as error:
            raise StoreUnavailableError(f"versitygw was not built within {BUILD_SECONDS_MAX} s") from error
        if run.returncode != 0:
            tail = "\n".join((run.stdout + run.stderr).splitlines()[-10:])
            raise StoreUnavailableError(f"versitygw could not be built; is the network up? go says:\n{tail}")
        target.parent.mkdir(exist_ok=True)
        (Path(name) / "versitygw").rename(target)
    announce(f"built versitygw {VERSION} into {target.parent}")
