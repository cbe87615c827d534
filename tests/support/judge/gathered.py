"""Examples of hypothesis in one go, for tests whose every call costs a second: a Spark job judges them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hypothesis import HealthCheck, Phase, given, settings

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def gathered(strategy: SearchStrategy[T], number: int) -> list[T]:
    """Return about so many examples, different ones in each run."""
    found: list[T] = []

    @settings(
        max_examples=number,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def gather(each: T) -> None:
        found.append(each)

    gather()
    return found
