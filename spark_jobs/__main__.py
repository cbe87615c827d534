"""`python -m spark_jobs`, and the file that `spark-submit` takes."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # a plain file to spark-submit, with its own folder on the path instead of the one above
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, str(here.parent))

from spark_jobs.cli import main

if __name__ == "__main__":
    main()
