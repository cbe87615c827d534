"""Run as `python -m spark_jobs`, or give this file to `spark-submit`."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # spark-submit runs a plain file, with this folder on the path instead of its parent
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))

from spark_jobs.cli import main

if __name__ == "__main__":
    main()
