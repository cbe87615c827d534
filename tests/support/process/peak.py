"""The most memory that a program takes.

Linux gives a new program its parent's peak as a start (`exec` notes what the memory that it replaces has had at most,
and after `vfork` that is the parent's). So a small interpreter stands between a test worker, which may have had
gigabytes, and the program.
"""

from __future__ import annotations

import subprocess
import sys

_BETWEEN = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(*arguments: object) -> tuple[int, float]:
    """Run `ingestor` with arguments; return its exit code and the most memory that it took."""
    command = [sys.executable, "-c", _BETWEEN, sys.executable, "-m", "ingestor", *map(str, arguments)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=240).stdout
    code, kilobytes = said.split()
    return int(code), int(kilobytes) / 1024
