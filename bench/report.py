"""Where results go: progress to stderr, a table to stdout, everything as JSON into `.bench/`."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).parent.parent / ".bench"
_STARTED = time.monotonic()
_LOAD_BEFORE = os.getloadavg()[0]
_PACKAGES = ("confluent-kafka", "deltalake", "numpy", "pyarrow")


def say(what: str) -> None:
    """Tell a person how far it is."""
    sys.stderr.write(f"[{time.monotonic() - _STARTED:6.1f} s] {what}\n")
    sys.stderr.flush()


def machine() -> dict[str, Any]:
    """Describe what was measured on, without naming it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30)),
        "load_before": round(_LOAD_BEFORE, 1),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def save(benchmark: str, options: Mapping[str, Any], **results: Any) -> Path:  # noqa: ANN401 - whatever JSON can hold
    """Write a benchmark's results and return the file."""
    now = datetime.now(UTC)
    document = {"benchmark": benchmark, "at": now.isoformat(timespec="seconds"), "options": dict(options)}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{now:%Y%m%dT%H%M%SZ}-{benchmark}.json"
    path.write_text(json.dumps({**document, "machine": machine(), **results}, indent=1) + "\n")
    return path


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, in Markdown, so that it can be kept."""
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    print(f"\n{title}\n")
    for row in [heads, rule, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print(f"| {' | '.join(cells)} |")
    sys.stdout.flush()
