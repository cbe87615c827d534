"""Options of `kafka` and `storage_options` that would break exactly-once and are refused.

All others go to librdkafka and delta-rs unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ingestor.config.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_NO = ("false", "f", "0")


class _Fixed(NamedTuple):
    allowed: tuple[str, ...]
    because: str


_TOO_EARLY = "Kafka would count records as done before they are in the table"
_KAFKA_FIXED = {
    "enable.auto.commit": _Fixed(_NO, _TOO_EARLY),
    "auto.commit.enable": _Fixed(_NO, _TOO_EARLY),
    "enable.auto.offset.store": _Fixed(_NO, "only what is in the table may be stored as done"),
    "isolation.level": _Fixed(("read_committed",), "records of aborted transactions would land"),
    "auto.offset.reset": _Fixed(("error",), "an offset out of range must be noticed, not skipped"),
    "enable.partition.eof": _Fixed(("true", "t", "1"), "the end of a partition must be seen"),
}
# The ingestor calculates with these.
_WHOLE_NUMBERS = ("queued.max.messages.kbytes", "session.timeout.ms", "max.poll.interval.ms")
_CALLBACKS = ("on_commit", "on_delivery", "logger", "default.topic.config")
_STORAGE_NO = ("false", "0", "off", "no", "n", "")
_UNSAFE = "two writers could overwrite each other's commit"


def option_text(value: object) -> object:
    """Return an option as text for librdkafka and delta-rs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def problems(document: Mapping[str, object], environ: Mapping[str, str]) -> Iterator[Problem]:
    """Find refused options, whether or not the rest of the configuration is valid."""
    kafka = document.get("kafka", "")
    if kafka is None or isinstance(kafka, dict):
        yield from _kafka(kafka or {})
    options = document.get("storage_options")
    if isinstance(options, dict):
        yield from _storage(options, "storage_options.")
    yield from _storage(environ, "environment variable ")


def _kafka(options: Mapping[str, object]) -> Iterator[Problem]:
    for needed in ("bootstrap.servers", "group.id"):
        if not str(option_text(options.get(needed, ""))).strip():
            yield Problem(f"kafka.{needed}", "is missing", "add it")
    for name, value in options.items():
        text = option_text(value)
        fixed = _KAFKA_FIXED.get(name)
        if fixed and isinstance(text, str) and text.strip().lower() not in fixed.allowed:
            what = f"must be {fixed.allowed[0]}: {fixed.because}"
            yield Problem(f"kafka.{name}", what, "leave it out, the ingestor sets it")
        elif name.endswith("_cb") or name in _CALLBACKS:
            yield Problem(f"kafka.{name}", "is no setting but a Python object", "leave it out")
        elif name in _WHOLE_NUMBERS and isinstance(text, str) and not _NUMBER.fullmatch(text):
            yield Problem(f"kafka.{name}", "is not a whole number above 0", "write plain digits")


def _storage(options: Mapping[str, object], prefix: str) -> Iterator[Problem]:
    for name, value in options.items():
        key, text = name.lower(), str(option_text(value)).strip().lower()
        if key.endswith("allow_unsafe_rename") and text not in _STORAGE_NO:
            yield Problem(f"{prefix}{name}", f"must be false: {_UNSAFE}", "leave it out")
        elif key.endswith("conditional_put") and text in ("disabled", "none"):
            yield Problem(f"{prefix}{name}", f"must not be off: {_UNSAFE}", "leave it out, or use etag")
