"""`ingestor audit`: audits the table of every route, with progress for a person who watches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ingestor.audit import Report, audit_table
from ingestor.errors import RefusedError, Unavailable
from ingestor.reader import KafkaReader
from ingestor.routing import app_ids

if TYPE_CHECKING:
    from ingestor.settings import Settings


def audit_routes(settings: Settings, *, against_kafka: bool, watched: bool) -> dict[str, Report]:
    """Return the report of each route's table."""
    reports = {}
    for name, route in settings.routes.items():
        try:
            reports[name] = audit_table(
                route.table,
                settings.storage_options,
                app_ids(settings, route),
                route.schema,
                kafka=KafkaReader(settings.kafka, extras=route.extra_columns) if against_kafka else None,
                progress=_show if watched else _silent,
                from_start=True,
            )
        except Unavailable as error:
            msg = f"route {name}: the audit can't be finished: {error}"
            raise RefusedError(
                msg, hint="see that Kafka and the store can be reached; `ingestor check` tells"
            ) from error
        if watched:
            sys.stderr.write("\r\033[K")
    return reports


def _show(text: str) -> None:
    sys.stderr.write(f"\r\033[K{text}")
    sys.stderr.flush()


def _silent(_text: str) -> None:
    """Say nothing: nobody watches."""
