"""The functions of `intake.c` and `dictionary.c`, and of the librdkafka that confluent_kafka has loaded, by ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import cimpl, libversion

from ingestor import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LIBRARY = Path(__file__).parent / "libintake.so"
SWITCH = "INGESTOR_NATIVE"  # "off" disables the native intake
# The newest librdkafka that tests/unit/kafka/test_native.py has passed with. Raise it together with requirements/.
NEWEST_TESTED = "2.16.0"
WANT_KEYS, WANT_HEADERS, WANT_TIMESTAMP_TYPES = 1, 2, 4
_PLUGINS = "plugin.library.paths"
_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Column(ctypes.Structure):
    """Memory that the library has allocated."""

    bytes: int | None
    used: int
    _fields_ = [("bytes", _P), ("used", _I64), ("room", _I64)]


def _binary(name: str) -> list[tuple[str, Any]]:
    return [*((f"{name}_{part}", Column) for part in ("starts", "data", "valid")), (f"{name}_nulls", _I64)]


class EventRow(ctypes.Structure):
    """An event; without a topic it is of the whole client."""

    error: int
    partition: int
    offset: int
    topic: bytes
    text: bytes
    _fields_ = [
        *(("error", _I32), ("partition", _I32), ("offset", _I64)),
        *(("topic", ctypes.c_char * 256), ("text", ctypes.c_char * 512)),
    ]


class Batch(ctypes.Structure):
    """The limits of a batch, and its columns by name; a binary column has several parts."""

    records_max: int
    bytes_max: int
    records_likely: int
    bytes_likely: int
    wanted: int
    out_of_memory: int
    records: int
    bytes: int
    _fields_ = [
        *((name, _I64) for name in ("records_max", "bytes_max", "records_likely", "bytes_likely")),
        *(("wanted", _I32), ("out_of_memory", _I32), ("records", _I64), ("bytes", _I64)),
        *((name, Column) for name in ("topics", "topic_names", "topic_codes", "partitions", "offsets")),
        *((name, Column) for name in ("timestamps", "timestamp_types")),
        *(*_binary("payloads"), *_binary("keys"), ("header_starts", Column)),
        *(*_binary("header_names"), *_binary("header_values"), ("events", Column)),
    ]


class Reading(ctypes.Structure):
    """The messages of one read, and how many of them have been put into columns."""

    count: int
    at: int
    _fields_ = [("came", _P * 1000), ("count", _I64), ("at", _I64)]

    @property
    def left(self) -> int:
        """Return how many are not in columns yet."""
        return max(0, self.count - self.at)


class DictionaryHead(ctypes.Structure):
    """How many values a dictionary has, their bytes and where they are; what it finds them by is not told."""

    values: int
    bytes: int
    data: int
    starts: int
    _fields_ = [
        *(("secret", ctypes.c_uint64), ("values", _I64), ("values_room", _I64), ("bytes", _I64), ("bytes_room", _I64)),
        *(("data", _P), ("starts", _P)),
    ]


class Native:
    """The functions to call; every argument is an address or a number."""

    def __init__(self, library: Path) -> None:
        """Load the library; raise OSError or AttributeError if a function is missing."""
        here, kafka = ctypes.CDLL(str(library)), ctypes.CDLL(cimpl.__file__)
        missing = _typed(here.attach, ctypes.c_char_p, ctypes.c_char_p)(os.fsencode(cimpl.__file__))
        if missing:
            msg = f"librdkafka has no {missing.decode()}"
            raise OSError(msg)
        self.take_client = _typed(here.take_client, _P)
        self.take = _typed(here.take, None, _P, _P, ctypes.c_int, _P, _P)
        self.give_back = _typed(here.give_back, None, _P)
        self.dictionary_new = _typed(here.dictionary_new, _P, ctypes.c_uint64)
        self.dictionary_free = _typed(here.dictionary_free, None, _P)
        self.dictionary_add = _typed(here.dictionary_add, ctypes.c_int, *(_P,) * 4, _I64, _I64, _P)
        self.new_queue = _typed(kafka.rd_kafka_queue_new, _P, _P)
        self.partition_queue = _typed(kafka.rd_kafka_queue_get_partition, _P, _P, ctypes.c_char_p, _I32)
        self.forward = _typed(kafka.rd_kafka_queue_forward, None, _P, _P)
        self.destroy_queue = _typed(kafka.rd_kafka_queue_destroy, None, _P)


def _typed(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:  # noqa: ANN401 - ctypes has no types
    function.restype, function.argtypes = result, arguments
    typed: Callable[..., Any] = function
    return typed


@functools.cache
def load() -> tuple[Native | None, str]:
    """Return the functions, or None and the reason; log a librdkafka that is newer than tested."""
    if os.environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}:
        return None, f"{SWITCH} is off"
    if not LIBRARY.exists():
        return None, "this package was built without a C compiler"
    try:
        native = Native(LIBRARY)
    except (OSError, AttributeError) as error:
        return None, str(error)
    version = libversion()[0]
    if release(version) > release(NEWEST_TESTED):
        logs.get().info("librdkafka is newer than tested", version=version, newest_tested=NEWEST_TESTED)
    return native, ""


def release(version: str) -> tuple[int, ...]:
    """Return a version of librdkafka as numbers, without the suffix of a pre-release."""
    return tuple(map(int, re.findall(r"\d+", version.partition("-")[0])))


def with_plugin(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a consumer's options with our plugin after the user's plugins."""
    own = options.get(_PLUGINS)
    return {**options, _PLUGINS: f"{own};{LIBRARY}" if own else str(LIBRARY)}
