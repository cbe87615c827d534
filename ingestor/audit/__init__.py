"""Proves one raw table from the outside: every offset once, where the log says, as Kafka has it.

It shares no state with the ingestor and trusts none of its words. The log, the files and Kafka are
all it reads, at the version that is the newest when it starts; what is committed meanwhile is left
to the next audit. In order:

- `log` walks the Delta log: txns only rise, no file is added twice;
- `rows` streams the coordinates of every live file: the file is there and is what the log says, its
  rows lie within their commit and their txn, no offset stands twice;
- `kafka` compares content with Kafka's records, reduced to digests by `content`;
- `report` holds what came of it.

Memory grows with the number of files and of log actions, never with the number of rows; each module
states its bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor import deltalog, table_rules
from ingestor.audit.content import RecordReader
from ingestor.audit.files import LiveFile
from ingestor.audit.kafka import KafkaAudit
from ingestor.audit.log import LogFacts, check_ends, walk
from ingestor.audit.report import Finding, Findings, Report
from ingestor.audit.rows import RowAudit
from ingestor.errors import ConfigError, RefusedError
from ingestor.table_files import live_files
from ingestor.table_open import open_existing, open_handle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.ledger import AppIds
    from ingestor.records import RawSchema

__all__ = ["Finding", "RecordReader", "Report", "audit_table"]


def audit_table(
    uri: str,
    storage_options: Mapping[str, str],
    app_ids: AppIds,
    schema: RawSchema,
    *,
    kafka: RecordReader | None,
    progress: Callable[[str], None],
    from_start: bool = False,
) -> Report:
    """Audit the newest version of a table.

    A partition is held to begin where a first commit without rows says (`start: latest`), else at
    its first row. With `from_start` the else is: at the beginning of Kafka's partition. That is
    right for every route that does not start at a time, and finds a head that never landed.
    """
    found = open_existing(uri, storage_options)
    if found is None:
        msg = f"there is no table at {uri}"
        raise ConfigError(msg, hint="correct the route's table path, or run the ingestor first")
    version, storage = found
    findings = Findings()
    _check_schema(uri, storage_options, schema, findings)
    facts = walk(storage, version, app_ids, findings)
    raw_txns = deltalog.txns_at(storage, version)
    txns = app_ids.read(raw_txns)
    live = map(LiveFile.of, live_files(uri, storage_options, version))
    rows = RowAudit(storage, sorted(live, key=lambda file: file.path), facts, findings)
    rows.scan(progress)
    rows.check_txns(txns, foreign=set(map(app_ids.parse_foreign, raw_txns)))
    check_ends(facts, findings)
    rows.find_duplicates(progress)
    compared = None
    if kafka is not None:
        against = KafkaAudit(kafka, rows, schema, facts, findings)
        compared = against.run(txns, from_start=from_start, progress=progress)
    return _report(uri, version, rows, facts, findings, compared=compared)


def _check_schema(uri: str, storage_options: Mapping[str, str], schema: RawSchema, findings: Findings) -> None:
    try:
        table_rules.verify_schema(uri, open_handle(uri, storage_options), schema)
    except RefusedError as error:
        findings.add(Finding("schema", error.message))


def _report(
    uri: str,
    version: int,
    rows: RowAudit,
    facts: LogFacts,
    findings: Findings,
    *,
    compared: int | None,
) -> Report:
    return Report(
        table=uri,
        version=version,
        rows=rows.rows,
        files=len(rows.files),
        commits=facts.commits,
        partitions=len(rows.spans),
        compared=compared,
        findings=tuple(findings.listed),
        findings_total=findings.total,
        notes=findings.notes,
    )
