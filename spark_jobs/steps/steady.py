"""Whether a rule says the same thing whenever it is asked, by Spark's own tree of it.

The text does not tell all: Spark takes the word `now` for a clock wherever text that is known beforehand becomes a
date or time, be it in a comparison.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_CLOCKS = ("now", "today", "tomorrow", "yesterday")
_MOMENTS = ("date", "timestamp", "timestamp_ntz", "time")
_UNSTEADY = ("Current", "Now", "LocalTimestamp", "Rand", "Uuid", "Shuffle", "CallMethodViaReflection", "InputFile")


def unsteady(rows: DataFrame) -> str | None:
    """Return what in a query's columns and conditions depends on when it is asked; None if nothing does."""
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - no public way
    while True:
        for expression in _each(plan.expressions()):
            found = _in(expression)
            if found is not None:
                return found
        children = list(_each(plan.children()))
        if not children:
            return None
        plan = children[0]  # a rule is asked of one table


def _in(expression: Any) -> str | None:  # noqa: ANN401 - Java's own
    name = str(expression.getClass().getSimpleName())
    if name.startswith(_UNSTEADY):
        return str(expression.prettyName())
    if name == "Cast":
        word = _word(expression)
        if word is not None:
            return f"'{word}' as a {expression.dataType().typeName()}"
    return next(filter(None, map(_in, _inside(expression))), None)


def _inside(expression: Any) -> Iterator[Any]:  # noqa: ANN401 - Java's own
    """Yield what an expression is made of, and what Spark puts in its place: `to_date` hides a cast."""
    yield from _each(expression.children())
    with contextlib.suppress(Py4JError):  # most have none
        yield expression.replacement()


def _word(cast: Any) -> str | None:  # noqa: ANN401 - Java's own
    """Return the word for a clock that a cast makes a moment of."""
    text = cast.child()
    if str(cast.dataType().typeName()) not in _MOMENTS or not text.foldable():
        return None
    if str(text.dataType().typeName()) != "string":
        return None
    value = text.eval(None)
    words = "" if value is None else str(value.toString()).strip().lower()
    return words if words.startswith(_CLOCKS) else None


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401 - Scala's own
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()
