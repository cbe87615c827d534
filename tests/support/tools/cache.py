"""The folder in the user's cache for what tests fetch or build once."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def root() -> Path:
    """Return the folder; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ingestor-tests"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file: of several processes one does the work, the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
