"""The demo's second half: the Spark jobs on what the first half has landed, as processes of their own.

Where Spark can't run it says why, and what is missed: the ingestor itself needs neither Java nor Spark.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestor.errors import IngestorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_JAVA_MAJOR_MIN = 17
_SECONDS_MAX = 900.0  # the first time jars are fetched
_SKIPPED = "skipped: parse into silver and quarantine, compaction"


def show_spark(config: Path, rows: int, tell: Callable[[str], None]) -> None:
    """Parse and compact, and show what came of it; or tell why not."""
    missing = _missing()
    if missing is not None:
        tell(f"{_SKIPPED} ({missing})")
        return
    tell("parsing on Spark (the first time its jars are fetched, which takes a minute) ...")
    balance = _job("parse", config)[-1]
    if balance["raw"] != rows:
        raise IngestorError(f"Spark parsed {balance['raw']:,} rows of {rows:,}", hint="report this, please")
    names = ("raw", "silver", "quarantine", "duplicates", "tombstones")
    _table(tell, names, [[f"{balance[name]:,}" for name in names]])
    tell("compacting raw and silver ...")
    tables = [
        [Path(done["table"]).name, *(f"{done[name]:,}" for name in ("files_before", "files_after"))]
        for done in _job("compact", config)
    ]
    _table(tell, ("table", "files before", "after"), tables)


def _missing() -> str | None:
    """Return what Spark needs and is not there."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        return f"they need Java {_JAVA_MAJOR_MIN} or newer, and there is none"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - Java
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < _JAVA_MAJOR_MIN:
        return f"they need Java {_JAVA_MAJOR_MIN} or newer, and {java} is {found[1] if found else 'none'}"
    jobs = importlib.util.find_spec("spark_jobs")
    if importlib.util.find_spec("pyspark") is None or jobs is None or jobs.origin is None:
        return "pyspark is not installed: pip install 'ingestor[spark]'"
    if not list(Path(jobs.origin).parent.glob("jars/*.jar")):
        return "their log stores are not built: that needs a JDK with javac"
    return None


def _job(name: str, config: Path) -> list[dict[str, Any]]:
    """Run a job; return the lines that it printed, each an object."""
    command = [sys.executable, "-m", "spark_jobs", name, str(config)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=_SECONDS_MAX)  # noqa: S603 - ourselves
    if ended.returncode != 0:
        hint = "its last line above tells why"
        raise IngestorError(f"spark_jobs {name} ended with exit code {ended.returncode}", hint=hint)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def _table(tell: Callable[[str], None], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Tell a small table, its columns aligned to the right."""
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    for row in [heads, *rows]:
        tell("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
