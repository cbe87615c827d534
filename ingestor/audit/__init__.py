"""Proves one raw table from the outside: every offset once, where the log says, as Kafka has it.

It does not trust the ingestor and shares no code with it that decides about offsets: it has its own readers of
the Delta log, of txn names and of Kafka's records. Both use the same words (`records`,
`errors`), open stores and Kafka clients alike (`storage`, `broker`, `by_hand`), and read the texts of
their failures alike (`failures`). tests/unit/audit/test_audit_independence.py tests this.

It audits the version that is the newest at its start. In order:

- `delta` reads the log, `names` maps txns to partitions, `schema` checks the columns;
- `log` walks the entries: txns only rise, no file is added twice; `facts` holds the results;
- `rows` streams the coordinates of every live file: the file exists and is as the log says, its rows are
  within their commit and their txn, no offset is there twice;
- `removed` finds rows that RESTORE, overwrites and DELETE removed and that were not put back;
- `kafka` compares content with Kafka's records (`consumer`), reduced to digests by `content`;
- `report` holds findings, notes and the verdict.

Memory grows with the number of files and of log actions, not with the number of rows; each module states
its bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingestor.audit.content import RecordReader
from ingestor.audit.delta import DeltaLog, open_table
from ingestor.audit.facts import check_ends
from ingestor.audit.kafka import KafkaAudit
from ingestor.audit.log import walk
from ingestor.audit.names import Names
from ingestor.audit.removed import Removals
from ingestor.audit.report import Finding, Findings, Report
from ingestor.audit.rows import RowAudit
from ingestor.audit.schema import check_schema
from ingestor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ingestor.audit.facts import LogFacts
    from ingestor.records import RawSchema

__all__ = ["Finding", "Names", "RecordReader", "Report", "audit_table"]


def audit_table(
    uri: str,
    storage_options: Mapping[str, str],
    names: Names,
    schema: RawSchema,
    *,
    kafka: RecordReader | None,
    progress: Callable[[str], None],
    from_start: bool = False,
) -> Report:
    """Audit the newest version of a table.

    A partition is expected to begin where a first commit without rows says (`start: latest`), otherwise at its first
    row. With `from_start` it is otherwise expected to begin where Kafka's partition does; this finds first records
    that were never committed, and is right for every route whose `start` is not a time.
    """
    storage = open_table(uri, storage_options)
    log = DeltaLog(storage)
    if log.newest < 0:
        msg = f"there is no table at {uri}"
        raise ConfigError(msg, hint="correct the route's table path, or run the ingestor first")
    findings = Findings()
    facts = walk(log, names, findings)
    check_schema(schema, facts.metadata, facts.protocol, findings)
    txns = names.partitions(facts.txns)
    rows = RowAudit(storage, sorted(facts.live.values(), key=lambda file: file.path), facts, findings)
    rows.scan(progress)
    rows.check_txns(txns, foreign=names.foreign(facts.txns))
    check_ends(facts, findings)
    rows.find_duplicates(progress)
    removals = Removals(storage, rows, facts, findings)
    removals.judge(progress)
    compared = None
    if kafka is not None:
        against = KafkaAudit(kafka, rows, schema, facts, findings, absent=removals.absent)
        compared = against.run(txns, from_start=from_start, progress=progress)
    return _report(uri, rows, facts, findings, compared=compared)


def _report(
    uri: str,
    rows: RowAudit,
    facts: LogFacts,
    findings: Findings,
    *,
    compared: int | None,
) -> Report:
    return Report(
        table=uri,
        version=facts.version,
        rows=rows.rows,
        files=len(rows.files),
        commits=facts.commits,
        partitions=len(rows.spans),
        compared=compared,
        complete=not findings.gone,
        findings=tuple(findings.listed),
        findings_total=findings.total,
        notes=findings.notes,
    )
