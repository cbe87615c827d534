"""The log: one event per line on stderr, for people (`console`) or machines (`json`); stdout is for results.

Everything that logs through the standard library has the same form, librdkafka included. Values are escaped, since
topics, error texts and headers come from outside: none can start a new line or send terminal codes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from traceback import format_exception
from typing import TYPE_CHECKING, Literal, TextIO

import structlog
from structlog.dev import ConsoleRenderer
from structlog.stdlib import BoundLogger, ExtraAdder, ProcessorFormatter, add_log_level, filter_by_level

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from structlog.typing import EventDict, Processor, WrappedLogger

NAME = "ingestor"
LIBRDKAFKA = f"{NAME}.librdkafka"
_ERROR_CHARS_MAX = 500
_THROTTLED_KEYS_MAX = 1000
_REPEAT_SECONDS = 30.0  # librdkafka logs an unreachable broker at every try
_AMBIGUOUS = frozenset(" =\"'\\")
_FIRST_KEYS = ("timestamp", "level", "event")


def get(**bound: object) -> BoundLogger:
    """Return a logger that adds `bound` to each event. It may be created before `configure`."""
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[filter_by_level, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger.bind(**bound)


def librdkafka_logger() -> logging.Logger:
    """Return the logger for Kafka clients; `configure` adds the filter that drops repetitions."""
    return logging.getLogger(LIBRDKAFKA)


def configure(
    format: Literal["console", "json"],  # noqa: A002 - the setting's name
    level: str,
    *,
    stream: TextIO | None = None,
) -> None:
    """Send every log line of the process to stderr in this form; other libraries' lines only from WARNING on."""
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(format, level, colors=out.isatty() and "NO_COLOR" not in os.environ))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "formatter", None).__class__ is ProcessorFormatter:
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, logging.getLevelName(level)))
    logging.getLogger(NAME).setLevel(level)
    librdkafka = librdkafka_logger()
    for repeated in [known for known in librdkafka.filters if isinstance(known, _Librdkafka)]:
        librdkafka.removeFilter(repeated)
    librdkafka.addFilter(_Librdkafka())


def _formatter(style: str, level: str, *, colors: bool) -> ProcessorFormatter:
    shared: list[Processor] = [
        ProcessorFormatter.remove_processors_meta,
        _shown_traceback if level == "DEBUG" else _named_exception,
        _plain_values,
    ]
    render: list[Processor] = [
        _escape,
        ConsoleRenderer(colors=colors, pad_event_to=0, sort_keys=False, pad_level=False),
    ]
    if style == "json":
        render = [structlog.processors.JSONRenderer()]
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    return ProcessorFormatter(
        foreign_pre_chain=[ExtraAdder(["suppressed"])],
        processors=[add_log_level, stamp, *shared, *render],
    )


def _named_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Log an exception's type and text without its traceback, which is for DEBUG."""
    error = _exception(event)
    event.pop("stack_info", None)
    if error is not None:
        event.setdefault("error", f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX])
    return event


def _shown_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = _exception(event)
    if error is not None:
        event["exception"] = "".join(format_exception(error)).rstrip()
    return event


def _exception(event: EventDict) -> BaseException | None:
    info = event.pop("exc_info", None)
    if isinstance(info, BaseException):
        return info
    found = info if isinstance(info, tuple) else sys.exc_info()
    return found[1] if info else None


def _plain_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn every value into a JSON type, so that rendering can't fail; time and level come first."""
    ordered = [key for key in _FIRST_KEYS if key in event]
    return {str(key): _plain(event[key]) for key in [*ordered, *(key for key in event if key not in _FIRST_KEYS)]}


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple, set, frozenset):  # a named tuple has its own text
        return [_plain(item) for item in value]  # type: ignore[attr-defined]
    return str(value)


def _escape(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Quote every value that is ambiguous on a console, above all one with line breaks."""
    trace = event.pop("exception", None)
    escaped: EventDict = {_on_one_line(key): _quoted(value) for key, value in event.items()}
    escaped["event"] = _on_one_line(str(event.get("event", "")))
    if trace is not None:
        escaped["exception"] = "\n".join(f"    | {_on_one_line(line)}" for line in str(trace).split("\n"))
    return escaped


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _quoted(value: object) -> object:
    """Return unambiguous text as it is; the renderer writes all other text with `repr`, which escapes it."""
    if not isinstance(value, str) or (value.isprintable() and value and not _AMBIGUOUS & set(value)):
        return value
    return _Shown(value)


@dataclass(frozen=True, slots=True, repr=False)
class _Shown:
    text: str

    def __repr__(self) -> str:
        return repr(self.text)


class Throttle:
    """Lets one event per key pass every `seconds`, and counts those that it holds back."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()  # key: when passed, held back since

    def allow(self, key: Hashable) -> int | None:
        """Return how many were held back since the last one passed, None if this one is held back."""
        with self._lock:
            now = self._clock()
            last, held_back = self._seen.get(key, (-math.inf, 0))
            if now - last < self._seconds:
                self._seen[key] = (last, held_back + 1)
                return None
            self._seen[key] = (now, 0)
            self._seen.move_to_end(key)
            if len(self._seen) > _THROTTLED_KEYS_MAX:
                self._seen.popitem(last=False)
            return held_back


class _Librdkafka(logging.Filter):
    """Drops librdkafka's repetitions (lines that differ in digits only), and lowers its errors to warnings.

    librdkafka recovers by itself from what it logs. The ingestor logs what stops it or loses records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle(_REPEAT_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        words = "".join(char for char in record.getMessage() if not char.isdigit())
        held_back = self._throttle.allow((record.levelno, words))
        if held_back:
            record.suppressed = held_back
        if record.levelno > logging.WARNING:
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return held_back is not None
