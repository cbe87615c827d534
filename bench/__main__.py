"""`python -m bench`: everything, in order. `python -m bench NAME [options]`: one of them."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys

from bench import report

BENCHMARKS = ("drain", "commit", "scrape", "probe", "micro", "steady", "partitions", "parse", "peers")
ALONE = ("check",)  # not part of everything: it compares with what was measured before


def main(arguments: list[str]) -> int:
    """Run one benchmark here, or each in a process of its own: what one leaves in memory is no other's business."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(os.EX_TEMPFAIL))  # so that what was started is stopped
    if arguments and arguments[0] in (*BENCHMARKS, *ALONE):
        code: int = importlib.import_module(f"bench.{arguments[0]}").main(arguments[1:])
        return code
    if arguments:
        sys.stderr.write(f"usage: python -m bench [{'|'.join((*BENCHMARKS, *ALONE))}] [options]\n")
        return 2
    for name in BENCHMARKS:
        report.say(f"== {name}")
        code = subprocess.run([sys.executable, "-m", "bench", name], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
