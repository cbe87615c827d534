"""The types of single values; each refusal has a hint.

A validator raises `refuse(what, hint)`; `problems` adds file, key and value.
"""

from __future__ import annotations

import os.path
import re
import warnings
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

_NUMBER_CHARS_MAX = 40  # longer text is no sensible number, and ByteSize overflows on it
MIB = 1024 * 1024
_WEEK_SECONDS = 7 * 86_400
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Syntax in which Python's regexes and librdkafka's (POSIX) differ: (?…), \d, lazy repeats, [[:digit:]].
_AMBIGUOUS = re.compile(r"\(\?|\\[A-Za-z0-9]|[*+?}][?+]|\[\^?\[")
# `user:secret@`; a number after the colon is a port. Azure's URLs have a container before the @, not a secret.
_CREDENTIALS = re.compile(r"\w+://[^/@:]*:(?!\d+(/|$))[^@]*@")
_CONTAINER_BEFORE_HOST = ("abfs", "wasb", "adl")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)?")
_DURATION_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Section(BaseModel):
    """A part of the configuration: immutable, unknown keys forbidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def refuse(what: str, hint: str) -> PydanticCustomError:
    """Return a validator's error: what is wrong with the value, and how to fix it."""
    return PydanticCustomError("refused", "{what}", {"what": what, "hint": hint})


def _number(value: object) -> object:
    """Accept text, which is all the environment has, but not YAML's true and false."""
    if isinstance(value, bool) or (isinstance(value, str) and len(value) > _NUMBER_CHARS_MAX):
        raise refuse("is not a number", "write a plain number")
    return value


def _size(value: object) -> object:
    """Refuse what ByteSize can't handle: lists, booleans and very long text."""
    short = isinstance(value, str) and len(value) <= _NUMBER_CHARS_MAX
    if isinstance(value, bool) or not (short or isinstance(value, int)):
        raise refuse("is not a size", "write bytes with a unit, such as 128MiB")
    return value


def _instant(value: object) -> object:
    """Accept `earliest`, `latest`, or a time with a zone, which becomes UTC."""
    if value in ("earliest", "latest"):
        return value
    hint = "write earliest, latest, or a time with its zone, such as 2026-01-31T00:00:00Z"
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise refuse("is not a time", hint) from None
    if not isinstance(moment, date):
        raise refuse("is not a time", hint)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise refuse("has no time zone", hint)
    if moment.timestamp() < 0:
        raise refuse("is before 1970, where Kafka has no timestamps", hint)
    return moment


def duration(text: str) -> timedelta:
    """Return the duration that `500ms`, `90s`, `15m`, `24h`, `7d` or a number of seconds means; else ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return timedelta(**{_DURATION_UNITS[match[2] or "s"]: float(match[1])})


def _duration(value: object) -> timedelta:
    try:
        if isinstance(value, str):
            return duration(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    raise refuse("is not a duration", "write seconds, or a number with a unit: 500ms, 90s, 15m, 24h or 7d")


def _seconds(value: object) -> object:
    """Return a duration in seconds; a number stays as it is."""
    parsed = _duration(value)
    return parsed.total_seconds() if isinstance(value, str) else value


def place(text: str, info: ValidationInfo) -> str:
    """Return a URL without its last slash, or `text` as an absolute path.

    Symbolic links are not resolved: the target of a mounted configuration changes with every update.
    """
    if not text.strip() or not text.isprintable():
        raise refuse("is not a path", "write a path or a URL such as s3://bucket/folder")
    if "://" in text:
        return _url(text)
    if _SCHEME.match(text):
        raise refuse("is neither a path nor a URL", "a URL has two slashes after its colon")
    if text.startswith("~"):
        raise refuse("starts with ~, which only a shell expands", "use ${HOME} instead")
    context: dict[str, Any] = info.context or {}
    folder: Path = context.get("folder", Path())
    return os.path.normpath(folder.absolute() / text)


def _unescaped(path: str) -> str:
    """Refuse a local path with an escape such as %20: delta-rs writes to it as it is, and reads it unescaped."""
    escaped = None if "://" in path else _ESCAPED.search(path)
    if escaped is not None:
        what = f"means {path}, where delta-rs takes {escaped[0]} for another character"
        raise refuse(what, "rename that folder, or choose another path: no % before two hex digits")
    return path


def _url(text: str) -> str:
    hint = "write a URL such as s3://bucket/folder"
    try:
        url = urlsplit(text)
    except ValueError:
        raise refuse("is not a URL", hint) from None
    if url.scheme == "memory":
        raise refuse("is lost when the process ends", "choose a path that lasts")
    if url.scheme == "file":
        if url.netloc not in ("", "localhost") or not url.path:
            raise refuse("names no local file", "write an absolute path, or file:///path")
        return os.path.normpath(unquote(url.path))
    if not url.netloc:
        raise refuse("names no bucket", hint)
    # A secret may contain slashes, so urlsplit may put the @ into the path.
    if _CREDENTIALS.match(text) or ("@" in url.netloc and not url.scheme.startswith(_CONTAINER_BEFORE_HOST)):
        raise refuse("has credentials in its URL", "put them in storage_options, which no message and no metric shows")
    return text.rstrip("/")


def _text(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise refuse("is empty or not printable", "write some text, without line breaks")
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise refuse("names something twice", "name each only once")
    return values


def _topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse illegal topic names, and a regex that is not alone or is ambiguous."""
    for topic in topics:
        if topic.startswith("^"):
            _check_regex(topic, alone=len(topics) == 1)
        elif not TOPIC.fullmatch(topic) or topic in (".", ".."):
            hint = "use letters, digits, dots, _ and - (at most 249), or one regex: ^…"
            raise refuse("holds a name that no Kafka topic can have", hint)
    return topics


def _check_regex(pattern: str, *, alone: bool) -> None:
    if not alone:
        raise refuse("mixes a regex with other topics", "write one regex alone, or names only")
    if _AMBIGUOUS.search(pattern):
        hint = "use [0-9] for \\d, plain groups, and greedy repeats"
        raise refuse("has a construct that librdkafka reads differently", hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of sets whose meaning will change
            re.compile(pattern)
    except (re.error, Warning, RecursionError, OverflowError):
        raise refuse("is not a valid regex", "correct the regex, or name the topics") from None


def _route_name(name: str) -> str:
    """Refuse a route name that is unsafe as a metric label, a file name or an argument."""
    if not _ROUTE_NAME.fullmatch(name):
        raise refuse("is not a route name", "name routes with letters, digits, dots, _ and -")
    return name


Number = BeforeValidator(_number)
Count = Annotated[int, Field(ge=1, lt=2**63), Number]
Retries = Annotated[int, Field(ge=0, lt=2**31), Number]
_AS_NUMBER = {"type": "number", "exclusiveMinimum": 0}
_AS_TEXT = {"type": "string", "pattern": rf"^\s*{_DURATION.pattern}\s*$"}
Seconds = Annotated[
    float,
    Field(gt=0, le=_WEEK_SECONDS),
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{**_AS_NUMBER, "maximum": _WEEK_SECONDS}, _AS_TEXT]}),
]
Size = Annotated[ByteSize, Field(gt=0, lt=2**60), BeforeValidator(_size)]
Start = Annotated[
    Literal["earliest", "latest"] | datetime,
    BeforeValidator(_instant),
    WithJsonSchema(
        {"anyOf": [{"enum": ["earliest", "latest"]}, {"type": "string", "format": "date-time", "pattern": "^[0-9]{4}"}]}
    ),
]
Duration = Annotated[
    timedelta,
    Field(gt=timedelta(0)),
    BeforeValidator(_duration),
    WithJsonSchema({"anyOf": [_AS_NUMBER, _AS_TEXT]}),
]
Text = Annotated[str, AfterValidator(_text)]
Place = Annotated[str, AfterValidator(place), AfterValidator(_unescaped)]
Names = Annotated[tuple[Text, ...], AfterValidator(_distinct)]
Distinct = AfterValidator(_distinct)
Topics = Annotated[
    Names,
    Field(min_length=1),
    AfterValidator(_topics),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}),
]
RouteName = Annotated[
    str, AfterValidator(_route_name), WithJsonSchema({"type": "string", "pattern": f"^{_ROUTE_NAME.pattern}$"})
]
