"""`python -m tests.support.slow_commits TABLE CLASSES`: OPTIMIZE after OPTIMIZE on a table, each commit held up.

CLASSES is the folder of the compiled `testing` classes. Prints a line per OPTIMIZE that landed; ends with its stdin.
"""

from __future__ import annotations

import sys
import threading

from ingestor.errors import OccExhaustedError
from spark_jobs import session
from spark_jobs.compact import compact
from spark_jobs.session import jvm


def tell(text: str) -> None:
    """Say a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_for_end(ended: threading.Event) -> None:
    """Set the event when stdin ends."""
    sys.stdin.read()
    ended.set()


def main(table: str, classes: str) -> None:
    """Compact until nobody listens any more."""
    ended = threading.Event()
    threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
    conf = {"spark.delta.logStore.file.impl": "testing.SlowLocalLogStore", "spark.hadoop.testing.delay.ms": "150"}
    spark = session.start(conf, s3=False)
    java = jvm(spark)
    java.java.lang.Thread.currentThread().getContextClassLoader().addURL(java.java.io.File(classes).toURI().toURL())
    while not ended.is_set():
        try:
            compact(spark, table)
            tell("optimized")
        except OccExhaustedError as error:
            tell(f"lost: {error}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
