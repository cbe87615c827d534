"""What is refused stays refused, through restarts and for whoever starts next, until a person answers it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from ingestor.ledger import KDI_TEMPLATE
from tests.support.judge.history import read_topics
from tests.support.kafka import topics
from tests.support.process.ingestors import ROUTE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.process.ingestors import Deploy, Deployment

pytestmark = pytest.mark.integration

RESTARTS = 3  # the refusal itself, and the supervisor that tries again


def test_a_renamed_topic_is_not_read_on_where_the_old_one_ended(kafka: Cluster, deploy: Deploy) -> None:
    """Without {topic} in its name a txn counts only for the topic that its rows came from."""
    old, new = topics.create(kafka.bootstrap), topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, old, values(100))
    topics.produce(kafka.bootstrap, new, values(50))
    deployment = deploy(old, txn_app_id=KDI_TEMPLATE)
    deployment.once()
    deployment.document["routes"][ROUTE]["topics"] = [new]

    refused(deployment, f"belongs to topic {old}, not to {new}", f"--set {new}:0=earliest", code=2)

    deployment.document["routes"][ROUTE]["table"] = "new-table"  # the first way out
    deployment.once()
    assert len(deployment.judge_committed([new])) == 50
    deployment.document["routes"][ROUTE]["table"] = ROUTE
    deployment.document["routes"][ROUTE]["topics"] = [old]
    deployment.once()  # the old topic goes on as ever
    deployment.document["routes"][ROUTE]["topics"] = [new]
    deployment.command("offsets", "--set", f"{new}:0=earliest", "--yes")  # the second
    deployment.once()
    assert offsets_of(deployment, new) == Counter(range(50))
    assert offsets_of(deployment, old) == Counter(range(100))


def test_two_app_ids_that_start_together_are_not_both_let_in(kafka: Cluster, deploy: Deploy) -> None:
    """Both look at an empty table. Whoever commits second is refused at its commit, and at every start after it."""
    topic = topics.create(kafka.bootstrap)
    one = deploy(topic, flush={"seconds": 3})
    other = deploy(topic, table=str(one.table()), flush={"seconds": 3})
    processes = [each.start() for each in (one, other)]
    for process in processes:
        process.wait_for("placed")
    topics.produce(kafka.bootstrap, topic, values(1000))

    loser = eventually(lambda: next((process for process in processes if not process.running), None))
    assert loser is not None
    assert loser.wait() == 2
    assert "reading it again would double its rows" in loser.last_line
    winner, refused_one = (one, other) if loser is processes[1] else (other, one)
    for process in processes:
        process.kill()

    for _ in range(2):
        assert "reading it again would double its rows" in refused_one.once(code=2).last_line
    winner.once()
    assert offsets_of(winner, topic) == Counter(range(1000))


@pytest.mark.parametrize("what", ["restore", "overwrite", "truncation"])
def test_rows_that_were_taken_away_stop_every_start_until_a_person_answers(
    kafka: Cluster, deploy: Deploy, what: str
) -> None:
    """The refusal stands in the log: behind a checkpoint, and after the entries are cleaned up."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic)
    for _ in range(2):
        topics.produce(kafka.bootstrap, topic, values(10))
        deployment.once()
    takes_away: dict[str, Callable[[DeltaTable], object]] = {
        "restore": lambda table: table.restore(1),
        "overwrite": lambda table: write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="overwrite"),
        "truncation": lambda table: table.delete(),
    }
    takes_away[what](DeltaTable(str(deployment.table())))
    topics.produce(kafka.bootstrap, topic, values(10))

    refused(deployment, "log entry 3", f"--accept {3}", code=4)
    DeltaTable(str(deployment.table())).create_checkpoint()
    for entry in sorted((deployment.table() / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    refused(deployment, "log entry 3", code=4)

    deployment.command("offsets", "--accept", "2", "--yes", code=2)
    first = 10 if what == "restore" else 0
    deployment.command("offsets", "--set", f"{topic}:0={first}", "--yes")
    for _ in range(2):
        deployment.once()
    assert offsets_of(deployment, topic) == Counter(range(30))


def test_a_removal_may_be_accepted(kafka: Cluster, deploy: Deploy) -> None:
    """Then ingestion goes on where it stood, and the rows stay gone. A second removal is refused anew."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic)
    for number in range(2):
        topics.produce(kafka.bootstrap, topic, values(10))
        deployment.once()
        DeltaTable(str(deployment.table())).delete()
        entry = DeltaTable(str(deployment.table())).version()
        topics.produce(kafka.bootstrap, topic, values(5))
        refused(deployment, f"log entry {entry}", code=4)
        assert "go on where they stand" in deployment.command("offsets", "--accept", str(entry), "--yes")
        deployment.once()
        assert offsets_of(deployment, topic) == Counter(range(15 * number + 10, 15 * number + 15))


def test_a_running_ingestor_stops_at_a_restore_and_so_does_its_supervisor(kafka: Cluster, deploy: Deploy) -> None:
    """The process that sees it writes it down before it ends."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic)
    ingestor = deployment.start()
    topics.produce(kafka.bootstrap, topic, values(10))
    deployment.wait_for_rows(10)
    DeltaTable(str(deployment.table())).restore(0)
    topics.produce(kafka.bootstrap, topic, values(10))
    assert ingestor.wait() == 4
    assert "log entry 2" in ingestor.last_line
    refused(deployment, "log entry 2", code=4)


def test_a_topic_that_was_recreated_is_known_however_long_ago_its_rows_landed(kafka: Cluster, deploy: Deploy) -> None:
    """The topic's id stands beside the txn, not in entries that are many commits back or cleaned up."""
    idle, busy = topics.create(kafka.bootstrap), topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, idle, values(50))
    deployment = deploy(idle, busy)
    deployment.once()
    append_entries(deployment.table(), 120)
    topics.delete(kafka.bootstrap, idle)
    topics.create(kafka.bootstrap, idle)
    topics.produce(kafka.bootstrap, idle, values(80))
    topics.produce(kafka.bootstrap, busy, values(5))

    refused(deployment, f"{idle}:0 offsets 0 to 49 (recreated)", code=3)

    DeltaTable(str(deployment.table())).create_checkpoint()
    for entry in sorted((deployment.table() / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    refused(deployment, f"{idle}:0 offsets 0 to 49 (recreated)", code=3)


def test_two_routes_with_one_table_by_two_paths_are_refused(kafka: Cluster, deploy: Deploy) -> None:
    """What opened is compared, not what was written: their txns can't be told apart."""
    one, other = topics.create(kafka.bootstrap), topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, one, values(150))
    topics.produce(kafka.bootstrap, other, values(100))
    deployment = deploy.routes(
        {"one": {"topics": [one], "table": "table"}, "other": {"topics": [other], "table": "link"}},
        txn_app_id=KDI_TEMPLATE,
    )
    (deployment.folder / "table").mkdir()
    (deployment.folder / "link").symlink_to(deployment.folder / "table")
    refused(deployment, "one table by two paths", code=2)
    deployment.document["txn_app_id"] = "{app_id}/{topic}/{partition}"  # the way out
    deployment.once()
    found = DeltaTable(str(deployment.folder / "table")).to_pyarrow_table().num_rows
    assert found == 250


@pytest.mark.faults
def test_a_table_whose_folder_is_copied_and_swapped_under_a_draft_loses_nothing(kafka: Cluster, deploy: Deploy) -> None:
    """A disk migration: the copy holds a part of the file that is being written. That part is never committed."""
    topic = topics.create(kafka.bootstrap)
    deployment = deploy(topic, flush={"seconds": 6, "rows": 1_000_000}, memory="64MiB")
    ingestor = deployment.start()
    ingestor.wait_for("placed")
    topics.produce(kafka.bootstrap, topic, [bytes([n % 251]) * 20_000 + n.to_bytes(4, "big") for n in range(1_500)])
    folder = deployment.table()
    deployment.wait_for(lambda: any(path.stat().st_size for path in folder.glob("part-*.parquet")))

    shutil.copytree(folder, deployment.folder / "copy")
    folder.rename(deployment.folder / "old-disk")
    (deployment.folder / "copy").rename(folder)

    expected = deployment.expect([topic])
    assert len(expected) == 1_500
    ingestor.stop()
    assert ingestor.wait() == 0
    deployment.judge(read_topics(kafka.bootstrap, [topic]))
    assert "every offset once" in deployment.command("audit")


# --- support ---


def refused(deployment: Deployment, *said: str, code: int) -> None:
    """See the ingestor refuse to start, and refuse again when its supervisor starts it; no row is added.

    `check` refuses alike, before the first start and after the last one, and writes nothing.
    """
    before = rows_of(deployment)
    entries = entries_of(deployment)
    deployment.command("check", code=code)
    assert entries_of(deployment) == entries
    for _ in range(RESTARTS):
        last_line = deployment.once(code=code).last_line
        for text in said:
            assert text in last_line, last_line
    deployment.command("check", code=code)
    assert rows_of(deployment) == before


def entries_of(deployment: Deployment) -> list[Path]:
    """Return the log entries of every table."""
    return sorted(path for route in deployment.document["routes"] for path in deployment.table(route).rglob("*.json"))


def rows_of(deployment: Deployment) -> list[int]:
    """Return how many rows each table holds, 0 for one that is not there."""
    tables = [deployment.table(route) for route in deployment.document["routes"]]
    return [DeltaTable(str(t)).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(str(t)) else 0 for t in tables]


def offsets_of(deployment: Deployment, topic: str) -> Counter[int]:
    """Return how often each offset of a topic is in the table."""
    rows: list[dict[str, Any]] = DeltaTable(str(deployment.table())).to_pyarrow_table().to_pylist()
    return Counter(row["stream_offset"] for row in rows if row["stream_topic"] == topic)


def append_entries(table: Path, count: int) -> None:
    """Add entries of another program's to the log, as if much had happened since."""
    log = table / "_delta_log"
    last = max(int(path.stem) for path in log.glob("*.json"))
    for version in range(last + 1, last + 1 + count):
        action = {"commitInfo": {"operation": "OPTIMIZE", "timestamp": version}}
        (log / f"{version:020d}.json").write_text(json.dumps(action))


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
