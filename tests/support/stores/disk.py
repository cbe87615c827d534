"""A small file system of a test's own, which can be full and can be read-only, without the rights of root.

It is mounted in a namespace that only one process holds open. So nobody else sees it, and it is gone with that
process, which ends with the test run, even with one that is killed.
"""

import subprocess
from pathlib import Path
from typing import Self

import pytest

_SECONDS_MAX = 10
_HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$0" && echo mounted && read -r _'
PAGE_BYTES = 4096  # a tmpfs gives out space by the page


class Disk:
    """A file system at a folder, for commands that are run `under` it."""

    def __init__(self, folder: Path, *, size: str) -> None:
        """Mount it, or skip the test where a user may not."""
        folder.mkdir()
        self.folder = folder
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", _HOLD, str(folder), size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            _, why = self._holder.communicate(timeout=_SECONDS_MAX)
            pytest.skip(f"no file system can be mounted in a namespace here: {why.decode().strip()}")
        holder = f"--target={self._holder.pid}"
        self.under = ("nsenter", holder, "--user", "--mount", "--preserve-credentials", f"--wd={Path.cwd()}")

    def run(self, *command: str) -> str:
        """Run another program there; return what it prints."""
        done = subprocess.run([*self.under, *command], capture_output=True, text=True, timeout=_SECONDS_MAX, check=True)
        return done.stdout

    def remount(self, options: str) -> None:
        """Change what it was mounted with, such as its size."""
        self.run("mount", "-o", f"remount,{options}", str(self.folder))

    def leave(self, free_bytes: int) -> None:
        """Fill it up to so much free space."""
        free = int(self.run("stat", "--file-system", "--format=%a", str(self.folder))) * PAGE_BYTES
        ballast = str(self.folder / "ballast")
        self.run("fallocate", "--length", str(free - free_bytes), ballast)

    def copy_out(self, name: str, target: Path) -> Path:
        """Copy a folder from it to where everybody sees it; return that."""
        self.run("cp", "-r", str(self.folder / name), str(target))
        return target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate(timeout=_SECONDS_MAX)  # closes its stdin, which is what it waits for
