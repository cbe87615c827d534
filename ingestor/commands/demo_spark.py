"""The demo's second half: the Spark jobs on the table of the first half (spark_jobs/demo.py).

Where Spark can't run it says why, and what is skipped. The ingestor itself needs neither Java nor Spark.
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
# Java's defaults spend most of the CPU of such a short run on compilation that never pays off.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
_SKIPPED = "skipped: parse into silver and quarantine, compaction"


class SparkHalf:
    """The Spark jobs in a child process. It starts at once, and parses while the first half ingests.

    A context manager, which ends the child.
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
        """End the child and its JVM."""
        if self.process is not None:
            self.process.terminate()
            with self.process:  # closes the pipes and waits
                pass

    def show(self, rows: int) -> None:
        """Parse and compact, and show the results, or say why Spark can't run."""
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
        with contextlib.suppress(BrokenPipeError):  # it has ended already; its exit code is checked below
            os.write(process.stdin.fileno(), b"all has landed\n")  # unbuffered: a failed write must not be repeated
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
            hint = "its last line above says why"
            raise IngestorError(f"the Spark jobs ended with exit code {process.returncode}", hint=hint)
        self._table(("table", "files before", "after"), tables)

    def _table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a small table with right-aligned columns."""
        widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
        for row in [heads, *rows]:
            self._tell("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _missing() -> str | None:
    """Return what Spark needs and is missing here, None if nothing."""
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
