"""What a process did to the files below a folder, as a list of operations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What was done; the letters are those of `recorder.c`."""

    OPEN = "o"  # a file that is made, if it is not there; cut to nothing, if `number` is 1
    WRITE = "w"
    TRUNCATE = "t"
    LINK = "l"
    RENAME = "r"
    UNLINK = "u"  # or a folder removed
    MKDIR = "m"
    SYNC = "s"
    SYNC_FOLDER = "S"
    NOTE = "n"  # to standard error


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; paths are relative to the folder, "" is the folder itself."""

    kind: Kind
    path: str = ""
    target: str = ""
    inode: int = 0
    number: int = 0
    content: bytes = b""
