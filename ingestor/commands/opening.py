"""Opens a route's table for a command, with the parts that `run` uses to read, place and commit.

`run` waits for a store that does not answer; a command fails at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingestor.config.routing import app_ids
from ingestor.delta.failures import classify
from ingestor.delta.guards import Guards
from ingestor.delta.open import open_existing
from ingestor.delta.table import RawTable
from ingestor.ingest.breaker import Breaker
from ingestor.ingest.committer import Committer, Occ, make_patience, system_rng
from ingestor.ingest.placement import Placer

if TYPE_CHECKING:
    from ingestor.config.settings import Route, Settings
    from ingestor.errors import IngestorError, Unavailable
    from ingestor.kafka.broker import Broker
    from ingestor.ledger import AppIds


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """An open table, with its committer and placer."""

    table: RawTable
    app_ids: AppIds
    committer: Committer
    placer: Placer


def open_if_there(settings: Settings, route: Route, broker: Broker, *, remember: bool = True) -> OpenRoute | None:
    """Open a route's table; return None, and create nothing, if there is none.

    Without `remember` a refusal is not written into the log either.
    """
    if open_existing(route.table, settings.storage_options) is None:
        return None
    return open_route(settings, route, broker, remember=remember)


def open_route(settings: Settings, route: Route, broker: Broker, *, remember: bool = True) -> OpenRoute:
    """Open a route's table, or create it."""
    try:
        table = RawTable(route.table, route.schema, settings.storage_options)
    except Exception as error:
        raise classify(error, doing=f"opening table {route.table}") from error
    ids = app_ids(settings, route)
    committer = Committer(
        table,
        Guards(route.name, route.table, ids),
        occ=Occ(route.occ.max_retries, route.occ.base_seconds, route.occ.max_seconds),
        patience=make_patience(
            max_retries=route.retry.max_retries,
            base_seconds=route.retry.base_seconds,
            max_seconds=route.retry.max_seconds,
            jitter=route.retry.jitter,
            breaker=Breaker(failures=1, open_seconds=60, successes=1, clock=time.monotonic),
            sleep=time.sleep,
            rng=system_rng(),
            on_failure=_give_up,
        ),
        remember=remember,
    )
    placer = Placer(route.name, route.table, committer, broker, skip_lost=route.on_data_loss == "skip")
    return OpenRoute(table, ids, committer, placer)


def _give_up(failure: IngestorError | Unavailable) -> None:
    raise failure
