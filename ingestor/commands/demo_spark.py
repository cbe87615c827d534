"""The demo's second half: the Spark jobs on what the first half has landed (spark_jobs/demo.py).

Where Spark can't run it says why, and what is missed: the ingestor itself needs neither Java nor Spark.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ingestor import DISTRIBUTION
from ingestor.errors import IngestorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_JAVA_MAJOR_MIN = 17
_SECONDS_MAX = 900.0  # the first time jars are fetched
# Of a JVM that runs for a minute Java's own choice spends the most on compiling for a future that it does not have.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
_SKIPPED = "skipped: parse into silver and quarantine, compaction"


class SparkHalf:
    """The Spark jobs in a process of their own. It starts at once, and parses while the first half lands.

    A context manager: what still runs in the end is ended.
    """

    def __init__(self, config: Path, tell: Callable[[str], None]) -> None:
        """Start Spark, if it can run here."""
        self._tell = tell
        self._missing = _missing()
        self.process: subprocess.Popen[str] | None = None
        if self._missing is None:
            tell("starting Spark beside it, to parse what lands (its jars are fetched once, which takes a minute)")
            command = [sys.executable, "-m", "spark_jobs.demo", str(config)]
            environ = {"JAVA_TOOL_OPTIONS": QUICK_JAVA, **os.environ}
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ)  # noqa: S603 - ourselves

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs; its JVM ends with it."""
        if self.process is not None:
            self.process.terminate()
            with self.process:  # closes the pipes and waits
                pass

    def show(self, rows: int) -> None:
        """Parse and compact, and show what came of it; or tell why not."""
        if self.process is None:
            self._tell(f"{_SKIPPED} ({self._missing})")
            return
        too_long = threading.Timer(_SECONDS_MAX, self.process.kill)
        too_long.start()
        try:
            self._show(self.process, rows)
        finally:
            too_long.cancel()

    def _show(self, process: subprocess.Popen[str], rows: int) -> None:
        self._tell("parsing the rest on Spark ...")
        assert process.stdin is not None  # noqa: S101 - a pipe
        with contextlib.suppress(BrokenPipeError):  # it ended before: its exit code is looked at below
            os.write(process.stdin.fileno(), b"all has landed\n")  # past the buffer, whose rest would be written again
        results = (json.loads(line) for line in process.stdout or ())
        balance = next(results, None)
        if balance is not None:
            if balance["raw"] != rows:
                raise IngestorError(f"Spark parsed {balance['raw']:,} rows of {rows:,}", hint="report this, please")
            names = ("raw", "silver", "quarantine", "duplicates", "tombstones")
            self._table(names, [[f"{balance[name]:,}" for name in names]])
            self._tell("compacting raw and silver ...")
        tables = [
            [Path(done["table"]).name, f"{done['files_before']:,}", f"{done['files_after']:,}"] for done in results
        ]
        if process.wait() != 0:
            hint = "its last line above tells why"
            raise IngestorError(f"the Spark jobs ended with exit code {process.returncode}", hint=hint)
        self._table(("table", "files before", "after"), tables)

    def _table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Tell a small table, its columns aligned to the right."""
        widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
        for row in [heads, *rows]:
            self._tell("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


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
        return f"pyspark is not installed: install {DISTRIBUTION}[spark]"
    if not list(Path(jobs.origin).parent.glob("jars/*.jar")):
        return "their log stores are not built: that needs a JDK with javac"
    return None
