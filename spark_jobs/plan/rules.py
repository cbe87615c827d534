"""SQL rules, looked over without a JVM: unknown fields, and functions that would not say the same thing twice.

Spark has the last word on each rule before a table is touched. What is found here is found in a tenth of a second.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z]{0,2})
      | (?P<name>[^\W\d]\w*)
      | (?P<sign>->|=>|.)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset(
    """
    all and any array as asc between bigint binary boolean both byte case cast char collate date day dayofweek
    dayofyear days dec decimal desc distinct div double dow doy else end epoch escape exists false float for
    from hour hours ilike in int integer interval is leading like long map microsecond microseconds millisecond
    milliseconds minute minutes month months not null numeric or overlay position quarter real regexp rlike
    second seconds short similar smallint some string struct substring then timestamp timestamp_ltz
    timestamp_ntz tinyint to trailing trim true week weeks when xor year yearofweek years
    """.split()  # noqa: SIM905 - a line for each word would be a page
)
# Functions without parentheses, or whose result depends on the clock, on chance or on a row's place.
_UNSTEADY = frozenset(
    """
    curdate current_catalog current_database current_date current_schema current_time current_timestamp
    current_user identifier input_file_block_length input_file_block_start input_file_name java_method localtime
    localtimestamp monotonically_increasing_id now rand randn random randstr reflect session_user shuffle
    spark_partition_id try_reflect uniform user uuid
    """.split()  # noqa: SIM905 - a line for each word would be a page
)
STEADY_HINT = "a record would be good today and bad tomorrow; use its own message_timestamp"
_MOMENTS = frozenset(("date", "timestamp", "timestamp_ltz", "timestamp_ntz", "time"))
_MOMENT = re.compile(r"""[rR]?['"]\s*(?:[+-]?\d|epoch\b)""")  # other text is a word for the clock, or invalid
_CLOCK_WITHOUT_ARGUMENTS = frozenset(("unix_timestamp", "current_timezone"))


class RuleError(ValueError):
    """An invalid rule: the message says what is wrong, `hint` how to fix it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def check(sql: str, fields: Collection[str]) -> None:
    """Refuse a rule with unknown fields, with other tables, or with a result that changes from call to call."""
    tokens = list(_tokens(sql))
    _refuse_brackets(tokens)
    known = {name.lower() for name in fields}
    lambdas = _lambda_names(tokens)
    for at, (kind, text) in enumerate(tokens):
        if kind not in ("name", "quoted"):
            continue
        _refuse_clock_in_text(text, tokens[at + 1] if at + 1 < len(tokens) else ("", ""))
        before = tokens[at - 1][1] if at else ""
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        lower = text.lower()
        if before == "." or (kind == "name" and lower in lambdas):
            continue
        _refuse_unsteady(lower, after, tokens[at + 2][1] if at + 2 < len(tokens) else "", known)
        if lower in known or (kind == "name" and (after == "(" or lower in _WORDS)):
            continue
        near = get_close_matches(lower, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(fields)}"
        raise RuleError(f"names {text}, which is no field of the schema", hint)


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        if kind != "space":
            yield kind, match[kind]


def _refuse_brackets(tokens: list[tuple[str, str]]) -> None:
    depth = 0
    for kind, text in tokens:
        if kind == "sign" and text in ("'", '"', "`", ";"):
            raise RuleError(f"has a {text} that does not belong there", "write one SQL expression that must be true")
        if kind == "sign":
            depth += (text in "([") - (text in ")]")
        if depth < 0:
            break
    if depth:
        raise RuleError("has brackets that don't match", "write one SQL expression that must be true")
    for kind, text in tokens:
        if kind == "name" and text.lower() == "select":
            raise RuleError("asks other tables", "a rule can look at its own record only")


def _refuse_unsteady(lower: str, after: str, then: str, known: Collection[str]) -> None:
    unsteady = lower in _UNSTEADY and (after == "(" or lower not in known)
    if unsteady or (lower in _CLOCK_WITHOUT_ARGUMENTS and after == "(" and then == ")"):
        raise RuleError(f"uses {lower}, which does not say the same thing twice", STEADY_HINT)


def _refuse_clock_in_text(word: str, after: tuple[str, str]) -> None:
    """Refuse `timestamp 'now'` and the like: literals whose value changes."""
    if word.lower() in _MOMENTS and after[0] == "text" and not _MOMENT.match(after[1]):
        raise RuleError(f"uses {word.lower()} {after[1]}, which does not say the same thing twice", STEADY_HINT)


def _lambda_names(tokens: list[tuple[str, str]]) -> set[str]:
    """Return the names before an arrow: `x -> …`, `(x, y) -> …`."""
    found: set[str] = set()
    for at, (_, text) in enumerate(tokens):
        if text != "->":
            continue
        back = at - 1
        if back >= 0 and tokens[back][1] == ")":
            while back >= 0 and tokens[back][1] != "(":
                back -= 1
            found |= {name.lower() for kind, name in tokens[back:at] if kind == "name"}
        elif back >= 0:
            found.add(tokens[back][1].lower())
    return found
