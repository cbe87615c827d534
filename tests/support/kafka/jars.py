"""Fetches the jars of a whole Kafka broker once, into the user's cache."""

from collections.abc import Callable
from pathlib import Path

from tests.support.tools.ivy import Dependency, fetch

KAFKA_VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"
_LOG4J = "org.apache.logging.log4j"
_WANTED = (
    Dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Dependency(_LOG4J, "log4j-core", LOG4J_VERSION),
    Dependency(_LOG4J, "log4j-slf4j-impl", LOG4J_VERSION),
)


def kafka(announce: Callable[[str], None] = print) -> Path:
    """Return the folder of jars; the first time in a user's life, download it."""
    what = f"Kafka {KAFKA_VERSION} (45 MB, once; takes about a minute)"
    return fetch(f"kafka-{KAFKA_VERSION}", _WANTED, what, announce)
