"""`ingestor audit`: audits the table of every route, and shows progress on a terminal."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from ingestor.audit import Names, Report, audit_table
from ingestor.audit.consumer import KafkaReader
from ingestor.errors import RefusedError, Unavailable

if TYPE_CHECKING:
    from ingestor.config.settings import Route, Settings


def audit_routes(settings: Settings, *, against_kafka: bool, watched: bool) -> dict[str, Report]:
    """Return the report of each route's table."""
    reports = {}
    for name, route in settings.routes.items():
        try:
            reports[name] = _audit(settings, route, against_kafka=against_kafka, watched=watched)
        except Unavailable as error:
            msg = f"route {name}: the audit can't be finished: {error}"
            raise RefusedError(msg, hint="see that Kafka and the store are reachable; try `ingestor check`") from error
        if watched:
            sys.stderr.write("\r\033[K")
    return reports


def _audit(settings: Settings, route: Route, *, against_kafka: bool, watched: bool) -> Report:
    names = Names(settings.txn_app_id, settings.app_id, () if route.is_regex else route.topics)
    known = (route.table, settings.storage_options, names, route.schema)
    progress = _show if watched else _silent
    if not against_kafka:
        return audit_table(*known, kafka=None, progress=progress)
    with closing(KafkaReader(settings.kafka)) as kafka:
        return audit_table(*known, kafka=kafka, progress=progress, from_start=True)


def _show(text: str) -> None:
    sys.stderr.write(f"\r\033[K{text}")
    sys.stderr.flush()


def _silent(_text: str) -> None:
    """Show no progress."""
