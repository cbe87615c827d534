"""Describes the problems of a configuration: the file, the key, the value, and how to fix it.

A value is shown only if it can't be a secret: nothing under `kafka` and `storage_options`, no value of an unknown key
(it may be a misplaced password), no password in a URL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from ingestor.errors import ConfigError
from ingestor.masking import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

_SHOWN_MAX = 80
_PROBLEMS_MAX = 50
_SECRET = ("kafka", "storage_options")
_SCALARS = (str, int, float, bool)
# Prefix of pydantic's error type (the first match counts), our text, and the hint.
_WORDS = (
    ("missing", "is missing", "add it"),
    ("too_short", "is empty", "name at least one"),
    ("int_", "is not a whole number", "write a whole number"),
    ("float_", "is not a number", "write a number"),
    ("byte_size", "is not a size", "write bytes with a unit, such as 128MiB"),
    ("string_pattern", "does not have the right form", "see docs/configuration.md"),
    ("finite_number", "is not a number", "write a number"),
    ("tuple_type", "is not a list", "write a list, such as [a, b]"),
    ("dict_type", "is not a mapping", "write keys and values below it, or {}"),
    ("model_type", "is not a mapping", "write keys and values below it, or {}"),
    ("model_attributes_type", "is not a mapping", "write keys and values below it, or {}"),
)
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the dotted key, what is wrong, how to fix it."""

    key: str
    what: str
    hint: str


def as_error(source: str, problems: Sequence[Problem]) -> ConfigError:
    """Return one error that names every problem in order."""
    named = [f"{_printable(problem.key)}: {problem.what}" for problem in problems[:_PROBLEMS_MAX]]
    if len(problems) > _PROBLEMS_MAX:
        named.append(f"and {len(problems) - _PROBLEMS_MAX} more")
    if len(problems) == 1:
        return ConfigError(f"{source}: {named[0]}", hint=problems[0].hint)
    hints = [f"{_printable(problem.key)}: {problem.hint}" for problem in problems[:_PROBLEMS_MAX]]
    return ConfigError(f"{source}: {'; '.join(named)}", hint="; ".join(hints))


def from_pydantic(errors: Sequence[ErrorDetails], model: type[BaseModel]) -> list[Problem]:
    """Return pydantic's errors in the configuration's terms."""
    return [_problem(error, model) for error in errors]


def shown(value: object) -> str:
    """Return a value as a person would write it, on one line and truncated; "" for a structure."""
    if isinstance(value, list | tuple) and all(isinstance(item, _SCALARS) for item in value):
        text = json.dumps(list(value), ensure_ascii=True)
    elif isinstance(value, _SCALARS):
        text = json.dumps(value, ensure_ascii=True)
    elif isinstance(value, dict):
        return ""
    else:
        text = "null" if value is None else str(value)
    text = without_credentials(text)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


def _problem(error: ErrorDetails, model: type[BaseModel]) -> Problem:
    steps = [str(step) for step in error["loc"]]
    key = ".".join(step for step in steps if step != "[key]")
    if error["type"] == "extra_forbidden":
        return Problem(key, "unknown key", _known_keys(steps, model))
    if error["type"] == "refused":
        what, hint = str(error["ctx"]["what"]), str(error["ctx"]["hint"])
    else:
        what, hint = _in_words(error)
    secret = steps[:1] and steps[0] in _SECRET
    value = "" if secret or error["type"] == "missing" else shown(error["input"])
    return Problem(key, f"{value} {what}".strip(), hint)


def _in_words(error: ErrorDetails) -> tuple[str, str]:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "literal_error":
        return "is not one of the choices", f"choose {context['expected']}"
    if kind == "string_type":
        structure = isinstance(error["input"], list | dict | type(None))
        return "is not text", "write text (a key with dots in one piece)" if structure else "put it in quotes"
    for name, words in _BOUNDS.items():
        if name in context:
            return f"must be {words} {_bound(context[name])}", "choose such a value"
    for prefix, what, hint in _WORDS:
        if kind.startswith(prefix):
            return what, hint
    return error["msg"].removeprefix("Input ").replace("should", "must"), "choose such a value"


def _bound(limit: object) -> str:
    """Write a limit in MiB where it is a whole number of them."""
    mebi, rest = divmod(limit, 1 << 20) if isinstance(limit, int) else (0, 1)
    return f"{mebi}MiB" if mebi and not rest else str(limit)


def _known_keys(steps: list[str], model: type[BaseModel]) -> str:
    """Return the known key nearest to an unknown one, or all known keys."""
    section: Any = model
    for step in steps[:-1]:
        section = _below(section, step)
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return "remove it"
    known = [field.alias or name for name, field in section.model_fields.items()]
    near = get_close_matches(steps[-1], known, n=1)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


def _below(section: Any, step: str) -> Any:  # noqa: ANN401 - annotations are any object
    """Return the annotation below a key: a model's field, or a mapping's value."""
    if isinstance(section, type) and issubclass(section, BaseModel):
        found = (f.annotation for n, f in section.model_fields.items() if step in (n, f.alias))
        section = next(found, None)
    elif get_origin(section) is dict:
        section = get_args(section)[1]
    if get_origin(section) is None or get_origin(section) is dict:
        return section
    models = (arg for arg in get_args(section) if isinstance(arg, type) and issubclass(arg, BaseModel))
    return next(models, None)


def _printable(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)
