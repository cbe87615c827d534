"""What delta-rs leaves to do on a local disk: it syncs nothing, so a power cut may take any name or file that it made.

A checkpoint that is torn, or a hint at one that is, would keep everybody from opening the table. So it is written in a
table aside, synced, and only then moved into the log. tests/faults/test_power_cut.py starts from every disk that a cut
may leave.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING

from ingestor.delta import deltalog
from ingestor.delta.held import sync
from ingestor.delta.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# VACUUM and readers leave alone what begins with an underscore.
_ASIDE = "_ingestor_aside-"
_LEFT_BEHIND_SECONDS = 3600.0


def anchor(root: Path) -> None:
    """Sync a table's folder and those above it, as far as the file system goes.

    Whoever made them may not have come to it: a process that was killed, or one that creates the table right now.
    """
    folder = root.resolve()
    device = folder.stat().st_dev
    while folder.stat().st_dev == device:
        with contextlib.suppress(PermissionError):  # may be passed through, but not read: made by somebody else
            sync(folder)
        if folder == folder.parent:
            return
        folder = folder.parent


def checkpoint(root: Path, write: Callable[[Path], int]) -> int:
    """Put a checkpoint into the log, then the hint at it; `write` makes both in a table aside and returns the version.

    That table has the same log, from the last checkpoint on, and no data files.
    """
    log = root / deltalog.LOG_DIR
    with _aside(root) as place:
        made = place / deltalog.LOG_DIR
        first = f"{deltalog.checkpointed(LocalStorage(root)) or 0:020d}"
        for name in os.listdir(log):  # noqa: PTH208 - names wanted, not paths
            if name[:20].isdecimal() and name >= first:
                (made / name).hardlink_to(log / name)
        version = write(place)
        hint = made / "_last_checkpoint"
        if hint.exists():  # else that version has a checkpoint already
            for part in sorted(made.glob(f"{version:020d}.checkpoint*")):
                _move(part, log)
            _move(hint, log)
    return version


@contextlib.contextmanager
def _aside(root: Path) -> Iterator[Path]:
    """Give an empty table's folder to work in; remove it afterwards, and those that killed processes left."""
    for left in root.glob(f"{_ASIDE}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    place = root / f"{_ASIDE}{uuid.uuid4().hex}"
    try:
        (place / deltalog.LOG_DIR).mkdir(parents=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _move(file: Path, folder: Path) -> None:
    """Sync a file, put it into another folder in place of one that has its name, and sync that folder."""
    sync(file)
    file.replace(folder / file.name)
    sync(folder)
