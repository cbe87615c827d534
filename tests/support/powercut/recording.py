"""What a process did to the files below a folder, in order, as `recorder.c` writes it down."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tests
from ingestor.kafka.native.build import build
from tests.support.powercut.disk import Disk
from tests.support.powercut.operations import Kind, Operation
from tests.support.process.child import ENDS_WITH_PARENT

if TYPE_CHECKING:
    from tests.support.powercut.disk import Tree

_HEAD = struct.Struct("<IIQqII")  # `struct head`
_SECONDS_MAX = 60
_IMPORTED_FROM = Path(tests.__file__).parents[1]


def library(folder: Path) -> Path:
    """Build the recorder, or skip the test where it can't be built."""
    if sys.platform != "linux":
        pytest.skip("files are recorded on Linux only")
    target = folder / "recorder.so"
    why = build(source=Path(__file__).with_name("recorder.c"), target=target)
    if why:
        pytest.skip(f"the recorder of file operations is not there: {why}")
    return target


@dataclass(frozen=True, slots=True)
class Recorder:
    """Runs Python programs, one after another or side by side, and records what they do below a folder."""

    library: Path
    root: Path
    log: Path

    def start(self, program: str, *arguments: str, kill_after: int | None = None) -> subprocess.Popen[bytes]:
        """Start a program, to be killed after so many operations, if a number is given."""
        found = (str(_IMPORTED_FROM), os.environ.get("PYTHONPATH", ""))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, found)),
            "LD_PRELOAD": str(self.library),
            "POWERCUT_ROOT": str(self.root),
            "POWERCUT_LOG": str(self.log),
            **({} if kill_after is None else {"POWERCUT_KILL": str(kill_after)}),
        }
        return subprocess.Popen(
            [sys.executable, "-c", ENDS_WITH_PARENT + program, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def run(self, program: str, *arguments: str, kill_after: int | None = None) -> bool:
        """Run a program to its end; tell whether it was killed."""
        return ended(self.start(program, *arguments, kill_after=kill_after)) != 0

    def operations(self) -> list[Operation]:
        """Return all that was recorded so far; it must explain every byte that stands in the folder now."""
        found = parse(self.log.read_bytes(), self.root)
        disk = Disk()
        for operation in found:
            disk.apply(operation)
        assert disk.tree() == tree_of(self.root), "something was done that was not recorded"
        return found


def ended(process: subprocess.Popen[bytes]) -> int:
    """Return how a process ended, which is by itself or by its own SIGKILL."""
    try:
        _, said = process.communicate(timeout=_SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode in (0, -signal.SIGKILL), f"it ended with {process.returncode}: {said.decode()[-3000:]}"
    return process.returncode


def parse(log: bytes, root: Path) -> list[Operation]:
    """Return the operations of a log."""
    found = []
    at = 0
    while at < len(log):
        first, second, inode, number, kind, _ = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        one, two = log[at : at + first], log[at + first : at + first + second]
        at += first + second
        found.append(_operation(Kind(chr(kind)), one, two, inode, number, root))
    return found


def _operation(kind: Kind, first: bytes, second: bytes, inode: int, number: int, root: Path) -> Operation:
    if kind in {Kind.WRITE, Kind.NOTE, Kind.TRUNCATE}:
        return Operation(kind, inode=inode, number=number, content=first)
    path, target = (os.fsdecode(each).removeprefix(str(root)).lstrip("/") for each in (first, second))
    return Operation(kind, path, target, inode, number)


def tree_of(root: Path) -> Tree:
    """Return what stands below a folder: files with their bytes, folders with None."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }
