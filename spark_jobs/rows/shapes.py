"""Walks through a column's type and applies a function to its leaves, at any depth of structs, arrays and maps.

A leaf's path has dots for members of structs; the elements of an array and the values of a map have its path. A column
without a concerned leaf is left as it is. The plan's size is proportional to the number of leaves.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark_jobs.plan import ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Leaf:
    """Which leaves are concerned, by type and path, and the function for them."""

    concerns: Callable[[str, str], bool]
    made: Callable[[Column, str, str], Column]


def any_leaf(_kind: str, _path: str) -> bool:
    """Return True for every leaf."""
    return True


def retyped(kind: str, leaf: Callable[[str, str], str], path: str) -> str:
    """Return a type of the same structure with other leaf types."""
    if kind.startswith("STRUCT<"):
        members = [ddl.Field(each.name, retyped(each.type, leaf, f"{path}.{each.name}")) for each in ddl.members(kind)]
        return f"STRUCT<{ddl.render(members)}>"
    if kind.startswith("ARRAY<"):
        return f"ARRAY<{retyped(ddl.inner(kind)[0], leaf, path)}>"
    if kind.startswith("MAP<"):
        key, value = ddl.inner(kind)
        return f"MAP<{key}, {retyped(value, leaf, path)}>"
    return leaf(kind, path)


def concerned(kind: str, path: str, leaf: Leaf) -> bool:
    """Return whether a type has a concerned leaf."""
    if kind.startswith("STRUCT<"):
        return any(concerned(each.type, f"{path}.{each.name}", leaf) for each in ddl.members(kind))
    if kind.startswith(("ARRAY<", "MAP<")):
        return concerned(ddl.inner(kind)[-1], path, leaf)
    return leaf.concerns(kind, path)


def mapped(column: Column, kind: str, path: str, leaf: Leaf) -> Column:
    """Return a column with its concerned leaves replaced."""
    if not concerned(kind, path, leaf):
        return column
    if kind.startswith("STRUCT<"):
        members = ddl.members(kind)
        found = [mapped(column[each.name], each.type, f"{path}.{each.name}", leaf) for each in members]
        fields = [value.alias(each.name) for each, value in zip(members, found, strict=True)]
        return F.when(column.isNotNull(), F.struct(*fields))
    if kind.startswith("ARRAY<"):
        return F.transform(column, lambda x: mapped(x, ddl.inner(kind)[0], path, leaf))
    if kind.startswith("MAP<"):
        return F.transform_values(column, lambda _, x: mapped(x, ddl.inner(kind)[1], path, leaf))
    return leaf.made(column, kind, path)


def anywhere(column: Column, kind: str, path: str, test: Leaf) -> Column:
    """Return whether a test holds for any concerned leaf; never null."""
    if not concerned(kind, path, test):
        return F.lit(False)
    if kind.startswith("STRUCT<"):
        members = ddl.members(kind)
        return either(anywhere(column[each.name], each.type, f"{path}.{each.name}", test) for each in members)
    if kind.startswith("ARRAY<"):
        found = F.exists(column, lambda x: anywhere(x, ddl.inner(kind)[0], path, test))
    elif kind.startswith("MAP<"):
        found = F.exists(F.map_values(column), lambda x: anywhere(x, ddl.inner(kind)[1], path, test))
    else:
        found = test.made(column, kind, path)
    return F.coalesce(found, F.lit(False))


def lost(column: Column, value: Column, field: ddl.Field, leaf: Leaf) -> Column:
    """Return whether a field, or a member of it, is present but did not convert."""
    if field.flat:  # reuses `value`, so that it is computed only once
        return column.isNotNull() & value.isNull() if leaf.concerns(field.type, field.name) else F.lit(False)
    unfit = Leaf(leaf.concerns, lambda x, kind, path: x.isNotNull() & leaf.made(x, kind, path).isNull())
    return anywhere(column, field.type, field.name, unfit)


def either(tests: Iterable[Column]) -> Column:
    """Return whether any of several tests holds."""
    return functools.reduce(operator.or_, tests, F.lit(False))
