"""Runs test_micro.py by pytest-benchmark, and keeps what it found."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench import report

_HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run pytest; more arguments are for it."""
    report.FOLDER.mkdir(exist_ok=True)
    result = report.FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-micro.json"
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-only", "--benchmark-json", str(result)]
    command += ["--benchmark-columns=min,median,mean,rounds", "--benchmark-sort=fullname"]
    return subprocess.run([*command, str(_HERE / "test_micro.py"), *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
