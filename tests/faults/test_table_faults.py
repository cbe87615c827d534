"""Others work on the table while an ingestor writes to it: it goes on, or stops and says why.

Never is a row there twice, and never is there a hole. What others do they do from a process of their own, with
delta-rs, as a person or a nightly job would.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ingestor.errors import RefusedError
from tests.support.kafka import topics
from tests.support.kafka.traffic import Traffic
from tests.support.process.ingestors import eventually
from tests.support.stores.s3_commits import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment

pytestmark = [pytest.mark.integration, pytest.mark.faults]

PARTITIONS = 3
_PRELUDE = """\
import sys
from datetime import timedelta
import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
table = DeltaTable(sys.argv[1])
"""


def other(table: Path, program: str) -> None:
    """Run a few lines on the table in another process."""
    command = [sys.executable, "-c", _PRELUDE + program, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def clean_up_log(table: Path) -> None:
    """Write a checkpoint and remove the entries before it, as any writer does once they are old enough."""
    other(table, "table.create_checkpoint()")
    newest = max((table / "_delta_log").glob("*.checkpoint.parquet"))
    for version in range(int(newest.name[:20])):
        (table / "_delta_log" / f"{version:020d}.json").unlink()


def spoil_checkpoint(table: Path) -> None:
    """Write a checkpoint of which a power cut leaves the beginning."""
    other(table, "table.create_checkpoint()")
    newest = max((table / "_delta_log").glob("*.checkpoint.parquet"))
    os.truncate(newest, newest.stat().st_size // 2)


def block_checkpoints(table: Path) -> None:
    """Let every checkpoint of the next versions fail: a folder is where its file should be."""
    newest = max(int(path.stem) for path in (table / "_delta_log").glob("*.json"))
    for version in range(newest, newest + 100):
        (table / "_delta_log" / f"{version:020d}.checkpoint.parquet").mkdir()


OPTIMIZE = """\
for _ in range(3):
    try:
        DeltaTable(sys.argv[1]).optimize.compact()
    except DeltaError as error:
        print(error)
"""


def test_ingestion_goes_on_beside_the_maintenance_of_others(kafka: Cluster, deploy: Deploy) -> None:
    """Then for so many commits that it would write checkpoints itself, all of which fail; then after a restart."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploy(topic, flush={"seconds": 0.05})
    ingestor = deployment.start()
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS, per_second=400) as traffic:
        for program in (OPTIMIZE, "table.vacuum(dry_run=False)", "table.create_checkpoint()", "table.delete('false')"):
            deployment.wait_for_commits(3)
            other(deployment.table(), program)
        block_checkpoints(deployment.table())
        deployment.wait_for(lambda: ingestor.events("checkpoint failed"))
        deployment.wait_for_commits(3)
    expected = deployment.expect([topic])
    ingestor.stop()
    assert ingestor.wait() == 0, ingestor.log_tail()
    deployment.judge(expected)
    assert expected.keys() == traffic.committed
    assert any("OPTIMIZE" in info.get("operation", "") for info in deployment.log().infos)
    topics.produce(kafka.bootstrap, topic, [b"later"])
    deployment.once()
    deployment.judge_committed([topic])


def test_ingestion_goes_on_after_log_cleanup(kafka: Cluster, deploy: Deploy) -> None:
    """A checkpoint knows what the entries said; also for a process that starts then."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploy(topic, flush={"seconds": 0.1})
    ingestor = deployment.start()
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS) as traffic:
        deployment.wait_for_commits(3)
        clean_up_log(deployment.table())
        deployment.wait_for_commits(3)
        ingestor.stop()
        assert ingestor.wait() == 0, ingestor.log_tail()
        deployment.start()
        deployment.wait_for_commits(3)
    expected = deployment.expect([topic])
    deployment.judge(expected)
    assert expected.keys() == traffic.committed


def change_property(table: Path) -> None:
    """Switch on what our appends would not keep."""
    other(table, "table.alter.set_table_properties({'delta.enableChangeDataFeed': 'true'})")


def add_column(table: Path) -> None:
    """Another schema than ours."""
    other(table, "table.alter.add_columns([Field('extra', PrimitiveType('string'))])")


def restore(table: Path) -> None:
    """Rows go, txns stay."""
    other(table, "table.restore(2)")


def replace(table: Path) -> None:
    """Another table at the same place, with the same schema; its maker does not wait for the ingestor."""
    # Again and again, for an ingestor may put a file into a folder that is just being emptied.
    program = """\
import os, shutil
schema = table.schema()
while os.path.exists(sys.argv[1]):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
DeltaTable.create(sys.argv[1], schema)
"""
    other(table, program)


def move_away(table: Path) -> None:
    """Somebody tidies up, or a disk is unmounted."""
    table.rename(table.with_name("moved"))


def leave_half_an_entry(table: Path) -> None:
    """Another writer lost its power in the middle of a log entry, at a slot that nobody else had yet."""

    def won() -> bool:
        entries = sorted((table / "_delta_log").glob("*.json"))
        slot = entries[-1].with_name(f"{int(entries[-1].stem) + 1:020d}.json")
        text = entries[-1].read_bytes()
        try:
            with slot.open("xb") as half:
                half.write(text[: len(text) // 2])
        except FileExistsError:
            return False
        return True

    eventually(won)


STOPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a property": (change_property, "has protocol 1/4"),
    "a column": (add_column, "extra"),
    "restore": (restore, "the table was restored to an older version"),
    # It depends on whether the folder goes before or after a file of ours was written.
    "another table": (replace, "was replaced or its log cut off|a file or folder of the table is gone"),
    "no table": (move_away, "was replaced or its log cut off|a file or folder of the table is gone"),
    "half an entry": (leave_half_an_entry, "log entry _delta_log/"),
    "half a checkpoint": (spoil_checkpoint, "checkpoint _delta_log/"),
}


@pytest.mark.parametrize(("work", "why"), STOPS.values(), ids=STOPS)
def test_ingestion_stops_at_what_only_a_person_can_judge(
    kafka: Cluster, deploy: Deploy, work: Callable[[Path], None], why: str
) -> None:
    """It says what has happened and what to do, and commits nothing more."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    deployment = deploy(topic, flush={"seconds": 0.2})
    ingestor = deployment.start()
    with Traffic(kafka.bootstrap, topic, partitions=PARTITIONS, per_second=200):
        deployment.wait_for_commits(5)
        work(deployment.table())
        assert ingestor.wait() == 4, ingestor.log_tail()
    assert re.search(why, ingestor.last_line)
    assert " — " in ingestor.last_line
    if work not in (restore, replace, move_away):  # what has gone can't be seen by who starts afterwards
        for _ in range(2):
            assert re.search(why, deployment.refused(4, " — ", starts=1).last_line)
    judge_what_is_left(deployment, topic, work)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("work", [replace, move_away], ids=["another table", "no table"])
def test_a_table_that_goes_in_a_commit_stops_the_committer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, work: Callable[[Path], None]
) -> None:
    """The slot stays empty for ever, so waiting for it would never end; nothing is written to what came instead."""
    folder = tmp_path / "table"
    writer = Writer(str(folder), {})
    writer.land(writer.stage())
    attempt = writer.table.attempt

    def attempt_beside(*args: Any) -> None:
        if when == "before":
            work(folder)
            attempt(*args)
        else:
            attempt(*args)
            work(folder)
            msg = "the answer is lost with the table"
            raise OSError(msg)

    monkeypatch.setattr(writer.table, "attempt", attempt_beside)
    staged = writer.stage()
    with pytest.raises(RefusedError, match="was replaced or its log cut off"):
        writer.land(staged)
    entries = sorted((folder / "_delta_log").glob("*.json"))
    assert len(entries) == (1 if work is replace else 0)


def judge_what_is_left(deployment: Deployment, topic: str, work: Callable[[Path], None]) -> None:
    """Nothing twice and no hole; and where the hint leads on, that."""
    entries = sorted((deployment.table() / "_delta_log").glob("*.json"))
    if work is move_away:
        assert entries == []  # no new table in its place
        shutil.rmtree(deployment.table(), ignore_errors=True)
        deployment.table().with_name("moved").rename(deployment.table())
        deployment.once()
        deployment.judge_committed([topic])
        return
    if work is restore:
        assert '"RESTORE"' in entries[-2].read_text()
        assert '"add"' not in entries[-1].read_text()  # the refusal, and nothing else was committed on top of it
        deployment.once(code=4)
        return
    if work is spoil_checkpoint:
        folder = deployment.table() / "_delta_log"
        for path in (*folder.glob("*.checkpoint.parquet"), folder / "_last_checkpoint"):
            path.unlink()
        deployment.once()
        deployment.judge_committed([topic])
        return
    if work is leave_half_an_entry:
        assert entries[-1].name in deployment.processes[0].last_line
        entries[-1].unlink()
        deployment.once()
        deployment.judge_committed([topic])
        return
    if work is replace:
        assert len(entries) == 1  # the new table, untouched
    deployment.judge_committed([topic], complete=False)
