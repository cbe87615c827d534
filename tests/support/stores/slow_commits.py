"""`python -m tests.support.stores.slow_commits TABLE CONF [CLASSES]`: OPTIMIZE after OPTIMIZE on a table.

CONF is Spark's settings as JSON; CLASSES a folder of classes that they name, by which commits are held up. Prints a
line per OPTIMIZE that landed; ends when its stdin does.
"""

from __future__ import annotations

import json
import sys
import threading

from ingestor.errors import OccExhaustedError
from spark_jobs.compact import compact
from spark_jobs.runtime import session
from spark_jobs.runtime.places import on_s3
from spark_jobs.runtime.session import jvm


def tell(text: str) -> None:
    """Say a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_for_end(ended: threading.Event) -> None:
    """Set the event when stdin ends."""
    sys.stdin.read()
    ended.set()


def main(table: str, conf: str, classes: str | None = None) -> None:
    """Compact until nobody listens any more."""
    ended = threading.Event()
    threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
    spark = session.start(json.loads(conf), s3=on_s3(table))
    if classes is not None:
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
