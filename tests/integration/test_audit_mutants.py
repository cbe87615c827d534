"""An ingestor that is broken where it reads its positions, drained for real: the audit of the same copy notices.

Each case breaks a copy of the sources in one place and runs both from it, the ingestor and `ingestor audit`. An audit
that shared the broken line would agree with what it did.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from deltalake import DeltaTable

import ingestor as package
from ingestor.kafka.native.library import SWITCH
from tests.support.kafka import topics
from tests.support.process.command import Ended, ingestor, write_config

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

RECORDS = [b"%d" % number for number in range(20)]
AGAIN = {"duplicate", "outside_commit"}
LOST = {"missing"}


class Broken(NamedTuple):
    """One break: `old` becomes `new` in a file; after some runs the audit's findings are of these kinds at least."""

    file: str
    old: str
    new: str
    kinds: set[str]
    runs: int = 2
    checkpoint: bool = False  # behind the first run
    set_to: int | None = None  # `offsets --set`, behind the first run


_NEXT = "None if txn is None else txn + 1"
_READ = 'txns[_text(body["appId"])] = _whole(body["version"])'
_KEPT = '(row["appId"], row["version"]) for row in txns'
_TAIL = "_replay(files, found, checkpoint + 1, version)"
BREAKS = {
    "a position is one too low": Broken("ledger.py", _NEXT, "None if txn is None else txn", AGAIN),
    "a position is one too high": Broken("ledger.py", _NEXT, "None if txn is None else txn + 2", LOST),
    "a person's position is one too high": Broken(
        "ledger.py", "return position - 1", "return position", {"passed_over"}, set_to=20
    ),
    "a person's position is one too low": Broken(
        "ledger.py", "return position - 1", "return position - 2", {"duplicate"}, set_to=20
    ),
    "a partition goes by the name of the next": Broken(
        "ledger.py", '"partition": str(tp.partition)}', '"partition": str(tp.partition + 1)}', {"no_txn"}
    ),
    "the log's reader is one behind": Broken("delta/deltalog.py", _READ, f"{_READ} - 1", AGAIN),
    "the log's reader is one ahead": Broken("delta/deltalog.py", _READ, f"{_READ} + 1", LOST),
    "a checkpoint's txns are one behind": Broken(
        "delta/deltalog.py", _KEPT, _KEPT.replace('"version"]', '"version"] - 1'), AGAIN, checkpoint=True
    ),
    "the entry behind a checkpoint is not read": Broken(
        "delta/deltalog.py", _TAIL, _TAIL.replace("+ 1", "+ 2"), AGAIN, runs=3, checkpoint=True
    ),
    "a payload is read as its key": Broken(
        "kafka/extract.py",
        "values=list(map(Message.value, messages))",
        "values=list(map(Message.key, messages))",
        {"changed"},
    ),
}


def drained(kafka: Cluster, folder: Path, broken: Broken) -> Ended:
    """Land records in some runs of a copy, and audit what came of it."""
    copy = folder / "copy"
    shutil.copytree(Path(package.__file__).parent, copy / "ingestor", ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / "ingestor" / broken.file
    text = source.read_text()
    assert text.count(broken.old) == 1, f"{broken.old!r} is no longer once in {broken.file}: write the break anew"
    source.write_text(text.replace(broken.old, broken.new))
    paths = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
    environ = {
        "PYTHONPATH": paths,
        "PYTHONSAFEPATH": "1",
        SWITCH: "off",
    }  # the copy, and in it what is written in Python
    topic = topics.create(kafka.bootstrap)
    config = write_config(folder, kafka.bootstrap, topic)
    for number in range(broken.runs):
        topics.produce(kafka.bootstrap, topic, RECORDS)
        if number == 1 and broken.checkpoint:
            DeltaTable(folder / "table").create_checkpoint()
        if number == 1 and broken.set_to is not None:
            ingestor("offsets", config, "--set", f"{topic}:0={broken.set_to}", "--yes", environ=environ)
        run = ingestor("run", config, "--once", environ=environ)
        assert broken.kinds or run.code == 0, run.stderr  # else it may notice by itself, too late
    return ingestor("audit", config, "--against-kafka", "--json", environ=environ)


def test_what_is_not_broken_is_found_right(kafka: Cluster, tmp_path: Path) -> None:
    """The same runs, with nothing changed in the copy."""
    audit = drained(kafka, tmp_path, Broken("ledger.py", _NEXT, _NEXT, set(), runs=3, checkpoint=True))

    assert audit.code == 0, audit.stdout + audit.stderr
    assert json.loads(audit.stdout)["events"]["compared"] == 3 * len(RECORDS)


@pytest.mark.parametrize("name", BREAKS)
def test_the_audit_notices_what_a_broken_way_in_did(kafka: Cluster, tmp_path: Path, name: str) -> None:
    """Though it runs with the same break."""
    audit = drained(kafka, tmp_path, BREAKS[name])

    assert audit.code == 3, audit.stdout + audit.stderr
    found = {finding["kind"] for finding in json.loads(audit.stdout)["events"]["findings"]}
    assert found >= BREAKS[name].kinds, audit.stdout
