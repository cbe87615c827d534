"""The steps of the commit protocol, logged one by one at DEBUG.

    opened, looked             the version, and the txns found there
    placed, dropped            a partition gets its position, or loses it
    sealed                     a draft is closed: the txns that it expects, and those that it will set
    compared                   the comparison before a commit; `moved`: the partitions that fence it
    put, answered, unanswered  one request, its slot (the log version), and the answer
    found                      the writer of the entry in that slot, after an error
    acknowledged, overlong     how the commit ended
    started_over               all uncommitted records were dropped

They are the actions of docs/model/Commit.tla; the tests check that the logged steps are a behaviour of that model.
Steps hold partitions, versions, txns and ids only, never a record's content.
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
    """Passes steps to a listener; costs nothing while it is off."""

    def __init__(
        self, tell: Callable[[Mapping[str, Any]], None] = lambda _step: None, *, on: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell = tell
        self._on = on

    def __call__(self, step: str, **what: object) -> None:
        """Pass one step; mutable values are copied."""
        if self._on():
            self._tell({"step": step, **{key: _plain(value) for key, value in what.items()}})


SILENT = Steps()


def logged(route: str) -> Steps:
    """Return steps that are logged with the route and the process id."""
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
