"""The steps of the commit protocol, told one by one at DEBUG: what a process read, compared, put and was answered.

    opened, looked             at which version, and the txns found there
    placed, dropped            a partition gets its place, or loses it
    sealed                     a file is closed: the txns it is built on, and those that it will set
    compared                   the same before a commit; `moved`: the partitions that fenced it
    put, answered, unanswered  one request, its slot, and what came back
    found                      who wrote the entry in that slot, after an error
    acknowledged, overlong     how the commit ended
    started_over               all that was in hand was dropped

They are the actions of docs/model/Commit.tla, and the tests check that what was told is a behaviour of that model.
Only partitions, versions, txns and ids are told, never what is in a record.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ingestor import logs
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable


class Steps:
    """Tells steps to whoever listens; costs nothing while nobody does."""

    def __init__(
        self, tell: Callable[[Mapping[str, Any]], None] = lambda _step: None, *, on: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell = tell
        self._on = on

    def __call__(self, step: str, **what: object) -> None:
        """Tell one step; values are taken as they are now."""
        if self._on():
            self._tell({"step": step, **{key: _plain(value) for key, value in what.items()}})


SILENT = Steps()


def logged(route: str) -> Steps:
    """Return what tells a route's steps to the log, with the process that does them."""
    log = logs.get(route=route, process=os.getpid())
    return Steps(lambda step: log.debug("step", **step), on=lambda: _LOGGER.isEnabledFor(logging.DEBUG))


_LOGGER = logging.getLogger(logs.NAME)


def _plain(value: object) -> object:
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, set | frozenset | list):
        return sorted(map(str, value))
    return value
