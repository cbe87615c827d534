"""Builds the library from the C sources here: `python -m ingestor.kafka.native.build`, or hatchling's hook.

Without a compiler the package works too: records are then read as Python objects, which costs more CPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).resolve().parent
SOURCES, TARGET = (_HERE / "intake.c", _HERE / "dictionary.c"), _HERE / "libintake.so"
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra")
_SECONDS_MAX = 120


def build(*, sources: Sequence[Path] = SOURCES, target: Path = TARGET, flags: tuple[str, ...] = ()) -> str:
    """Compile the library, put in place at once; return why there is none, "" if there is."""
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return "no C compiler (cc)"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder) / target.name
        command = [compiler, *_FLAGS, *flags, "-o", str(draft), *map(str, sources), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX)  # noqa: S603
        if done.returncode:
            names = ", ".join(source.name for source in sources)
            return f"{compiler} could not compile {names}: {done.stderr[-2000:]}"
        sys.stderr.write(done.stderr)
        draft.replace(target)
    return ""


def platform_tag() -> str:
    """Return a wheel's tag for this machine; the library does not use Python's ABI, so any Python 3 works."""
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def main() -> int:
    """Build; if that fails, print why and succeed all the same."""
    why = build()
    if why:
        sys.stderr.write(f"ingestor: without the native library records cost more CPU: {why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
