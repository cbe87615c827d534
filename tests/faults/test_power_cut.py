"""The power is cut at any moment: from every disk that may be left, all that was acknowledged is there and it goes on.

Where the cut tore the newest entry, the start is refused until `ingestor repair` has set that entry aside.

What real processes do to their files is recorded; a model of a disk tells what a cut may leave of it. See
tests/support/powercut.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.judge.history import check_table, read_log, read_topics
from tests.support.kafka import topics
from tests.support.powercut.ingestion import Ingestion, rebuild, txns_by_version
from tests.support.powercut.operations import Kind
from tests.support.powercut.recording import Recorder, ended, library
from tests.support.powercut.states import sample, states
from tests.support.process.ingestors import ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.judge.history import Content, Coordinate
    from tests.support.kafka.cluster import Cluster
    from tests.support.powercut.operations import Operation
    from tests.support.powercut.states import State
    from tests.support.process.ingestors import Deploy, Deployment

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

TABLE = "lake/raw/orders"  # none of the folders is there in the beginning
PARTITIONS = 2
ROWS = 10  # of a commit
COMMITS = 6
# Often enough for a short history to have some.
CHECKPOINT_EVERY = 3
INGESTOR = """
import ingestor.delta.table_log
ingestor.delta.table_log.CHECKPOINT_EVERY = int(sys.argv[2])
from ingestor.cli import main
sys.argv = ["ingestor", "run", sys.argv[1], "--once"]
main()
"""
IMPORTED = "from tests.support.powercut.ingestion import compact, main"
WRITER = f"{IMPORTED}; main()"
SHM = Path("/dev/shm")
either_table = pytest.mark.parametrize("partitioned", [False, True], ids=["single", "partitioned"])


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    root = tmp_path.resolve() / "disk"
    root.mkdir()
    return Recorder(library(tmp_path), root, tmp_path / "operations")


@dataclass(frozen=True)
class History:
    """What was recorded, and what it ingested."""

    ingestion: Ingestion
    operations: Sequence[Operation]
    txns: Sequence[Mapping[str, int]]  # by version
    repaired: list[State] = field(default_factory=list)  # those that were refused until `ingestor repair`

    def survives_cuts(
        self, count: int, *, seed: int = 0, where: Callable[[State], bool] = lambda _state: True
    ) -> list[State]:
        """Start from so many of the disks that cuts may leave; return these."""
        tried = sample([*filter(where, states(self.operations, seed))], count, seed)
        for state in tried:
            promised = self.txns[state.acknowledged] if state.acknowledged >= 0 else {}
            with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None, prefix="power-cut-") as folder:
                try:
                    if self.ingestion.survives(state, promised, Path(folder)):
                        self.repaired.append(state)
                except Exception as error:
                    raise AssertionError(f"{state}: {error}") from error
        return tried


# --- the whole process ---


def record_ingestor(
    recorder: Recorder, deploy: Deploy, kafka: Cluster, *, partitioned: bool, commits: int, checkpoint_every: int
) -> tuple[History, Deployment]:
    """Record an ingestor that drains a topic in about so many commits."""
    topic = topics.create(kafka.bootstrap, partitions=PARTITIONS)
    rng = random.Random(1)
    records = [
        topics.Record(value=rng.randbytes(rng.randrange(900)), partition=n % PARTITIONS) for n in range(commits * ROWS)
    ]
    topics.produce(kafka.bootstrap, topic, records)
    deployment = deploy(
        topic,
        table=str(recorder.root / TABLE),
        partition_by=["ingest_date"] if partitioned else [],
        flush={"rows": ROWS},
    )
    assert not recorder.run(INGESTOR, str(deployment.config()), str(checkpoint_every))
    expected = read_topics(kafka.bootstrap, [topic])
    ingestion = Ingestion(deployment.app_id, TABLE, partitioned, expected)
    table = recorder.root / TABLE
    check_table(expected, table, deployment.app_id)
    assert list((table / "_delta_log").glob("*.checkpoint.parquet")), "checkpoints are part of it"
    return History(ingestion, recorder.operations(), txns_by_version(table)), deployment


def runs_on(state: State, history: History, before: Deployment, deploy: Deploy) -> None:
    """Start the whole process from a disk, and judge."""
    deployment = deploy.routes(
        {ROUTE: {**before.document["routes"][ROUTE], "table": f"disk/{TABLE}"}}, app_id=before.app_id
    )
    disk = deployment.folder / "disk"
    disk.mkdir()
    rebuild(state.tree, disk)
    if state in history.repaired:
        deployment.refused(4, "`ingestor repair CONFIG`")
        deployment.command("repair", "--yes")
    deployment.once()
    deployment.judge(history.ingestion.expected)
    deployment.command("audit", "--against-kafka")


@either_table
def test_an_ingestor_s_power_is_cut(recorder: Recorder, deploy: Deploy, kafka: Cluster, *, partitioned: bool) -> None:
    """Table creation, commits and checkpoints; two of the disks are started from by a whole process."""
    history, deployment = record_ingestor(
        recorder, deploy, kafka, partitioned=partitioned, commits=10, checkpoint_every=CHECKPOINT_EVERY
    )
    tried = history.survives_cuts(500)
    assert len(tried) > 300
    whole = [state for state in tried if state not in history.repaired]
    for state in (random.Random(0).choice(whole), random.Random(0).choice(history.repaired)):
        runs_on(state, history, deployment, deploy)


# --- the way to the disk alone: quick, and killed and raced at chosen moments ---


def writing(recorder: Recorder, *, partitioned: bool) -> Ingestion:
    """Describe what a writer is to ingest, in a file beside the recorded folder."""
    rng = random.Random(2)
    expected: dict[Coordinate, Content] = {
        ("orders", partition, offset): (1_700_000_000_000 + offset, None, rng.randbytes(rng.randrange(900)), [])
        for partition in range(PARTITIONS)
        for offset in range(COMMITS * ROWS)
    }
    ingestion = Ingestion("shop", TABLE, partitioned, expected)
    (recorder.log.parent / "ingestion").write_bytes(pickle.dumps(ingestion))
    return ingestion


def arguments(recorder: Recorder) -> tuple[str, ...]:
    return str(recorder.log.parent / "ingestion"), str(recorder.root), str(ROWS), str(CHECKPOINT_EVERY)


def recorded(recorder: Recorder, ingestion: Ingestion) -> History:
    check_table(ingestion.expected, recorder.root / TABLE, ingestion.app_id)
    return History(ingestion, recorder.operations(), txns_by_version(recorder.root / TABLE))


@either_table
def test_a_writer_s_power_is_cut(recorder: Recorder, *, partitioned: bool) -> None:
    """What it told to be committed is there, no checkpoint is ever seen in part, and a torn entry is only set aside."""
    ingestion = writing(recorder, partitioned=partitioned)
    assert not recorder.run(WRITER, *arguments(recorder))
    history = recorded(recorder, ingestion)
    assert len(history.survives_cuts(500)) == 500
    assert history.repaired, "delta-rs does not sync its entries"


def kill_and_cut(recorder: Recorder, kill_after: int, count: int, *, partitioned: bool) -> int:
    """Kill a writer after so many operations, let another finish the work; return how many disks were tried."""
    ingestion = writing(recorder, partitioned=partitioned)
    if not recorder.run(WRITER, *arguments(recorder), kill_after=kill_after):
        return 0
    killed_at = len(recorder.operations())
    assert not recorder.run(WRITER, *arguments(recorder))
    soon = range(killed_at, killed_at + 100)  # later there is nothing left to sync of what the first one did
    tried = recorded(recorder, ingestion).survives_cuts(
        count, seed=kill_after, where=lambda state: state.cut_after in soon
    )
    return len(tried)


MOMENTS: dict[str, Callable[[Operation], bool]] = {
    "a folder above the table": lambda done: done.kind is Kind.MKDIR and done.path == "lake/raw",
    "the first entry": lambda done: done.kind is Kind.LINK and done.target.endswith(f"{0:020d}.json"),
    "a data file": lambda done: done.kind is Kind.OPEN and "part-" in done.path,
    "another entry": lambda done: done.kind is Kind.LINK and done.target.endswith(f"{CHECKPOINT_EVERY + 2:020d}.json"),
    "a checkpoint": lambda done: done.kind is Kind.RENAME and done.target.endswith(".checkpoint.parquet"),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    """What a writer does that nobody kills."""
    folder = tmp_path_factory.mktemp("undisturbed").resolve()
    (folder / "disk").mkdir()
    recorder = Recorder(library(folder), folder / "disk", folder / "operations")
    writing(recorder, partitioned=True)
    recorder.run(WRITER, *arguments(recorder))
    return [done for done in recorder.operations() if done.kind is not Kind.NOTE]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_writer_is_killed_and_then_the_power_is_cut(
    recorder: Recorder, undisturbed: list[Operation], moment: Callable[[Operation], bool]
) -> None:
    """Right behind it is made, and not synced: who comes next syncs it before it builds on it."""
    made = next(number for number, done in enumerate(undisturbed, 1) if moment(done))
    assert kill_and_cut(recorder, made, 150, partitioned=True)


def test_the_power_of_two_writers_is_cut(recorder: Recorder) -> None:
    """Each builds on what the other one has put, and may not have synced yet."""
    ingestion = writing(recorder, partitioned=False)
    both = [recorder.start(WRITER, *arguments(recorder)) for _ in range(2)]
    assert [ended(each) for each in both] == [0, 0]
    recorded(recorder, ingestion).survives_cuts(300)


OTHERS = {
    "beside": (f"{IMPORTED}; main(compact_after=3)",),
    "between": (f"{IMPORTED}; main(commits_max=3)", f"{IMPORTED}; compact()", WRITER),
}


@pytest.mark.parametrize("programs", OTHERS.values(), ids=OTHERS)
def test_what_others_write_without_a_sync_lasts_before_anything_is_built_on_it(
    recorder: Recorder, programs: Sequence[str]
) -> None:
    """OPTIMIZE replaces files that were acknowledged, and neither Spark nor delta-rs syncs what takes their place."""
    ingestion = writing(recorder, partitioned=True)
    for program in programs:
        assert not recorder.run(program, *arguments(recorder))
    history = recorded(recorder, ingestion)
    _, optimized = (entry.version for entry in read_log(recorder.root / TABLE).entries if not entry.ours)
    assert len(history.survives_cuts(100, where=lambda state: state.acknowledged > optimized)) == 100


# --- for long ---


@pytest.mark.soak
@pytest.mark.timeout(3600)
@either_table
def test_an_ingestor_s_power_is_cut_at_any_moment(
    recorder: Recorder, deploy: Deploy, kafka: Cluster, *, partitioned: bool
) -> None:
    """A longer history; ten whole processes."""
    history, deployment = record_ingestor(
        recorder, deploy, kafka, partitioned=partitioned, commits=50, checkpoint_every=10
    )
    tried = history.survives_cuts(4000)
    for state in random.Random(0).sample(tried, 10):
        runs_on(state, history, deployment, deploy)
    print(f"{len(tried)} disks of {len(history.txns)} versions, {len(history.operations)} operations")  # noqa: T201


@pytest.mark.soak
@pytest.mark.timeout(3600)
@either_table
def test_a_writer_is_killed_anywhere_and_then_the_power_is_cut(tmp_path: Path, *, partitioned: bool) -> None:
    """After each of its operations."""
    made = library(tmp_path)
    total = kills = 0
    while True:
        folder = tmp_path.resolve() / f"kill-{kills}"
        (folder / "disk").mkdir(parents=True)
        tried = kill_and_cut(
            Recorder(made, folder / "disk", folder / "operations"), kills, 100, partitioned=partitioned
        )
        if not tried:
            break
        kills, total = kills + 1, total + tried
    print(f"{kills} kills, {total} disks")  # noqa: T201
    assert kills > 100
