"""`ingestor audit` on tables that a real ingestor filled and somebody changed: exit codes, and what the lines say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.process.command import Ended, ingestor, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration


class Filled:
    """A topic of two partitions, and a table that three runs have landed it in, ten records of each a time."""

    def __init__(self, kafka: Cluster, folder: Path) -> None:
        """Fill it."""
        self.bootstrap = kafka.bootstrap
        self.topic = topics.create(kafka.bootstrap, partitions=2)
        self.config = write_config(folder, kafka.bootstrap, self.topic)
        self.uri = str(folder / "table")
        for _ in range(3):
            self.produce()
            assert self.run().code == 0

    def produce(self) -> None:
        """Add ten records to each partition."""
        rows = [Record(value=b"%d" % number, partition=number % 2) for number in range(20)]
        topics.produce(self.bootstrap, self.topic, rows)

    def run(self) -> Ended:
        """Land what there is."""
        return ingestor("run", self.config, "--once")

    def audit(self, *flags: str) -> Ended:
        """Audit the table."""
        return ingestor("audit", self.config, *flags)


@pytest.fixture
def filled(kafka: Cluster, tmp_path: Path) -> Filled:
    """A table that is right."""
    return Filled(kafka, tmp_path)


def test_a_jump_over_live_records_is_a_finding_while_kafka_has_them(filled: Filled) -> None:
    """From the table alone nobody can tell whether there was anything to land."""
    filled.produce()
    assert ingestor("offsets", filled.config, "--set", f"{filled.topic}:0=latest", "--yes").code == 0
    assert filled.run().code == 0

    alone, against = filled.audit(), filled.audit("--against-kafka")

    assert alone.code == 0, alone.stdout
    assert f"moved the txn of {filled.topic}:0 from 29 to 39: it passed over offsets 30 to 39" in alone.stdout
    assert "every offset once" not in alone.stdout
    assert against.code == 3, against.stdout
    told = f"finding (passed_over): {filled.topic}:0 offsets 30 to 39, 10 records: committed in Kafka, not in the table"
    assert told in against.stdout
    assert against.stdout.count("finding (") == 1


def test_a_restore_is_a_finding_and_stays_one(filled: Filled) -> None:
    """A supervisor starts the ingestor again, whatever it says; rows that are gone stay gone until somebody acts."""
    DeltaTable(filled.uri).restore(2)
    for _ in range(3):
        audit = filled.audit()
        assert audit.code == 3, audit.stdout
        for partition in (0, 1):
            told = f"(RESTORE) removed 10 rows of {filled.topic}:{partition}, offsets 20 to 29: nobody put them back"
            assert told in audit.stdout
        assert "every offset once" not in audit.stdout
        filled.run()


def test_what_a_restore_took_and_a_person_let_be_read_again_is_there(filled: Filled) -> None:
    """As docs/recovery.md says: set the offsets back, and start."""
    DeltaTable(filled.uri).restore(2)
    filled.run()
    for partition in (0, 1):
        done = ingestor("offsets", filled.config, "--set", f"{filled.topic}:{partition}=20", "--yes")
        assert done.code == 0, done.stderr
    assert filled.run().code == 0

    audit = filled.audit("--against-kafka")

    assert audit.code == 0, audit.stdout
    assert "every offset once, 60 equal to Kafka's" in audit.stdout


def test_a_restore_to_where_all_rows_are_is_none(filled: Filled) -> None:
    """It adds files again that stood there before; each row is there once."""
    version = DeltaTable(filled.uri).version()
    DeltaTable(filled.uri).restore(1)
    DeltaTable(filled.uri).restore(version)

    audit = filled.audit("--against-kafka")

    assert audit.code == 0, audit.stdout
    assert "every offset once, 60 equal to Kafka's" in audit.stdout


def test_rows_that_a_person_deleted_are_told(filled: Filled) -> None:
    """By partition; that is no fault, but not every offset is there."""
    DeltaTable(filled.uri).delete("stream_offset < 5 or (stream_partition = 1 and stream_offset = 12)")

    audit = filled.audit("--against-kafka")

    assert audit.code == 0, audit.stdout
    assert f"(DELETE) removed 5 rows of {filled.topic}:0, offsets 0 to 4\n" in audit.stdout
    assert f"(DELETE) removed 6 rows of {filled.topic}:1 between offsets 0 and 12\n" in audit.stdout
    assert "audit: OK — 49 rows" in audit.stdout
    assert "every offset once" not in audit.stdout
