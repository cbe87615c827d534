"""How the image runs the ingestor: with another allocator in front of libc's, which makes small records cheaper.

The image has it from a package of Debian's. Here it is used where that is installed, too; else benchmarks go without.
"""

from __future__ import annotations

import functools
from ctypes.util import find_library
from pathlib import Path

from bench import report
from tests.support.tools import dockerfile

_DOCKERFILE = Path(__file__).resolve().parent.parent / "docker" / "ingest.Dockerfile"
_PRELOAD = "LD_PRELOAD"


@functools.cache
def environ() -> dict[str, str]:
    """Return what the image sets to have its allocator; nothing where this machine has none."""
    library = dockerfile.read(_DOCKERFILE)[-1].environ()[_PRELOAD]
    if find_library(library.removeprefix("lib").partition(".")[0]) != library:
        report.say(f"without the image's allocator: no {library} (Debian: apt-get install libtcmalloc-minimal4)")
        return {}
    return {_PRELOAD: library}
