"""Every command does what its help says, prints only results on stdout, and ends with the exit code of the contract."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable

from tests.support.judge.history import check_history
from tests.support.kafka import topics
from tests.support.kafka.topics import Record
from tests.support.process.background import Background
from tests.support.process.command import Command, Ended, ingestor, write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

COMMANDS = ("init", "schema", "run", "check", "status", "offsets", "audit", "locate", "repair", "dlq", "demo")
ROWS = 20
RECORDS = [b"%d" % number for number in range(ROWS)]


@dataclass(frozen=True)
class Shop:
    """A topic, and the table that it goes to."""

    topic: str
    config: Path
    bootstrap: str

    @property
    def table(self) -> Path:
        """Where the table lies."""
        return self.config.parent / "table"

    @property
    def log(self) -> list[str]:
        """The names of the log's entries."""
        return sorted(path.name for path in (self.table / "_delta_log").glob("*.json"))

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the offsets that the table holds of a partition, sorted."""
        rows = DeltaTable(self.table).to_pyarrow_table(columns=["stream_partition", "stream_offset"]).to_pylist()
        return sorted(row["stream_offset"] for row in rows if row["stream_partition"] == partition)

    def run(self) -> None:
        """Land all that there is."""
        ended = ingestor("run", self.config, "--once")
        assert ended.code == 0, ended.stderr
        assert ended.stdout == ""

    def set(self, to: str, *flags: str, stdin: str = "") -> Ended:
        """Set where ingestion of the first partition goes on."""
        return ingestor("offsets", self.config, "--set", f"{self.topic}:0={to}", *flags, stdin=stdin)


def open_shop(kafka: Cluster, folder: Path, **route: Any) -> Shop:
    """Return a topic with some records in one partition, of which the table has none yet."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, RECORDS)
    return Shop(topic, write_config(folder, kafka.bootstrap, topic, **route), kafka.bootstrap)


@pytest.fixture
def shop(kafka: Cluster, tmp_path: Path) -> Shop:
    """A topic of which nothing has landed."""
    return open_shop(kafka, tmp_path)


@pytest.fixture
def landed(shop: Shop) -> Shop:
    """A topic of which all has landed."""
    shop.run()
    return shop


@pytest.fixture(scope="module")
def shown(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A topic of two partitions, whose table is only looked at: the second partition is three records behind."""
    folder = tmp_path_factory.mktemp("shown")
    topic = topics.create(kafka.bootstrap, partitions=2)
    topics.produce(kafka.bootstrap, topic, [Record(value=value, partition=0) for value in RECORDS])
    topics.produce(kafka.bootstrap, topic, [Record(value=value, partition=1) for value in RECORDS[:5]])
    shop = Shop(topic, write_config(folder, kafka.bootstrap, topic), kafka.bootstrap)
    shop.run()
    topics.produce(kafka.bootstrap, topic, [Record(value=b"late", partition=1)] * 3)
    yield shop
    shutil.rmtree(folder)


def assert_last_line(ended: Ended, code: int, *words: str) -> None:
    """Assert an exit code, and that the last line says what happened and what to do."""
    assert ended.code == code, f"exit code {ended.code}:\n{ended.stderr}"
    assert "Traceback" not in ended.stderr, ended.stderr
    assert re.fullmatch(r"ingestor: \S.* — \S.*", ended.last_line), ended.stderr
    assert all(word in ended.last_line for word in words), f"{words} are not all in: {ended.last_line}"


# --- version and help -------------------------------------------------------------------------------------------------


def test_the_version_is_printed() -> None:
    """It is the version of the package that is installed."""
    ended = ingestor("--version")

    assert (ended.code, ended.stdout, ended.stderr) == (0, f"ingestor {version('txn-ingestor')}\n", "")


def test_the_help_names_every_command_and_every_exit_code() -> None:
    """Who knows nothing finds the way from here."""
    ended = ingestor("--help")

    assert (ended.code, ended.stderr) == (0, "")
    assert all(f"\n  {command} " in ended.stdout for command in COMMANDS), ended.stdout
    assert all(f"{code} " in ended.stdout.partition("Exit codes:")[2] for code in range(6)), ended.stdout
    assert "..." not in ended.stdout.partition("Commands:")[2], "a sentence is cut off"


@pytest.mark.parametrize("command", [*COMMANDS, "dlq publish", "dlq list", "dlq replay"])
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    """Most people read nothing else."""
    ended = ingestor(*command.split(), "--help")

    assert (ended.code, ended.stderr) == (0, "")
    assert f"Example: ingestor {command}" in " ".join(ended.stdout.split())


# --- check ------------------------------------------------------------------------------------------------------------


def test_a_check_tells_line_by_line_that_all_is_well_and_creates_nothing(shop: Shop) -> None:
    """Neither a table nor a consumer group comes of it."""
    ended = ingestor("check", shop.config)

    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "ok    configuration",
        "ok    kafka",
        "ok    group",
        "ok    topics of events",
        "ok    table of events",
        "ok    store of events",
    ]
    assert f"{shop.topic} (1 partitions)" in lines[3]
    assert "does not exist yet and will be created" in lines[4]
    assert list(shop.config.parent.iterdir()) == [shop.config]
    assert shop.topic not in topics.groups(shop.bootstrap)


def test_a_check_of_a_table_that_is_there_changes_nothing(shown: Shop) -> None:
    """It tells how far the table is."""
    before = shown.log

    ended = ingestor("check", shown.config)

    assert (ended.code, ended.stderr) == (0, "")
    assert f"{shown.table} at version 1, 2 partitions committed" in ended.stdout
    assert shown.log == before


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_are_shown_as_a_table(shown: Shop) -> None:
    """Committed is the last offset that landed; the lag is what is left."""
    ended = ingestor("offsets", shown.config)

    assert (ended.code, ended.stderr) == (0, "")
    assert [line.split() for line in ended.stdout.splitlines()] == [
        ["route", "topic", "partition", "committed", "low", "high", "lag"],
        ["events", shown.topic, "0", "19", "0", "20", "0"],
        ["events", shown.topic, "1", "4", "0", "8", "3"],
    ]


def test_offsets_are_shown_as_json(shown: Shop) -> None:
    """It is one object with the same content."""
    ended = ingestor("offsets", shown.config, "--json")

    common = {"route": "events", "topic": shown.topic, "low": 0}
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == {
        "partitions": [
            {**common, "partition": 0, "committed": 19, "high": 20, "lag": 0},
            {**common, "partition": 1, "committed": 4, "high": 8, "lag": 3},
        ]
    }


def test_offsets_of_a_table_that_is_not_there_yet_are_shown_too(shop: Shop) -> None:
    """Nothing was committed, everything is lag, and no table comes of looking."""
    ended = ingestor("offsets", shop.config, "--json")

    (partition,) = json.loads(ended.stdout)["partitions"]
    assert (partition["committed"], partition["lag"]) == (None, ROWS)
    assert not shop.table.exists()


def test_offsets_set_forward_skip_records(shop: Shop) -> None:
    """What lies before is not landed, and the audit knows why."""
    ended = shop.set("15", "--yes")

    assert ended.code == 0, ended.stderr
    assert ended.stdout == f"{shop.topic}:0: never committed → 15, in version 1 of table {shop.table}\n"
    assert ended.stderr == f"{shop.topic}:0: offsets 0 to 14 (15) will not be landed, though Kafka still has them\n"
    shop.run()
    skipped = {(shop.topic, 0, offset) for offset in range(15)}
    check_history(shop.bootstrap, [shop.topic], shop.table, "shop", lost=skipped)
    assert ingestor("audit", shop.config, "--against-kafka").code == 0


def test_offsets_set_to_latest_and_back_to_earliest(shop: Shop) -> None:
    """Without rows in the table there is nothing to double."""
    assert shop.set("latest", "--yes").code == 0
    shop.run()
    assert shop.offsets() == []

    assert shop.set("earliest", "--yes").code == 0
    shop.run()

    assert check_history(shop.bootstrap, [shop.topic], shop.table, "shop") == ROWS


@pytest.mark.parametrize("to", ["0", "earliest", "19"])
def test_offsets_can_not_be_set_before_rows_that_are_there(shown: Shop, to: str) -> None:
    """They would land a second time; the line tells which rows to delete first."""
    before = shown.log

    ended = shown.set(to, "--yes")

    first = 19 if to == "19" else 0
    where = f"stream_topic = '{shown.topic}' AND stream_partition = 0 AND stream_offset >= {first}"
    assert_last_line(ended, 2, f"still holds {shown.topic}:0 up to offset 19", "would double rows", where)
    assert shown.log == before


def test_offsets_set_back_after_a_delete_land_the_rows_again(landed: Shop) -> None:
    """The predicate that the refusal names is the one to delete by; then every record is there once."""
    refused = landed.set("5", "--yes")
    predicate = re.search(r"WHERE (.*?)\)", refused.last_line)
    assert predicate is not None, refused.last_line
    DeltaTable(landed.table).delete(predicate[1])
    assert landed.offsets() == list(range(5))

    assert landed.set("5", "--yes").code == 0
    landed.run()

    assert landed.offsets() == list(range(ROWS))
    audit = ingestor("audit", landed.config, "--against-kafka")
    assert audit.code == 0, audit.stdout
    assert f"{ROWS} rows" in audit.stdout


def test_offsets_can_not_be_set_before_rows_that_somebody_else_landed(landed: Shop, tmp_path: Path) -> None:
    """Who adopts a table says where to go on in it, not before."""
    adopting = Shop(
        landed.topic,
        write_config(tmp_path, landed.bootstrap, landed.topic, app_id="heir"),
        landed.bootstrap,
    )
    before = landed.log

    assert_last_line(adopting.set("earliest", "--yes"), 2, "still holds", "would double rows")
    assert landed.log == before

    topics.produce(landed.bootstrap, landed.topic, RECORDS)
    assert adopting.set(str(ROWS), "--yes").code == 0
    adopting.run()
    assert adopting.offsets() == list(range(2 * ROWS))
    audit = ingestor("audit", adopting.config, "--against-kafka")
    assert audit.code == 0, audit.stdout


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "enter", "nobody there"])
def test_offsets_are_not_set_without_a_yes(shop: Shop, answer: str) -> None:
    """The question says what would change; without a yes not even a table is made."""
    ended = shop.set("15", stdin=answer)

    assert_last_line(ended, 2, "nothing was changed", "--yes")
    assert f"{shop.topic}:0: never committed → 15. Go ahead?" in ended.stderr
    assert ended.stdout == ""
    assert not shop.table.exists()


def test_offsets_are_set_after_a_yes(landed: Shop) -> None:
    """The question says from where to where."""
    topics.produce(landed.bootstrap, landed.topic, RECORDS)

    ended = landed.set("30", stdin="y\n")

    assert ended.code == 0, ended.stderr
    said = ended.stderr.splitlines()
    assert said[0] == f"{landed.topic}:0: offsets 20 to 29 (10) will not be landed, though Kafka still has them"
    assert f"{landed.topic}:0: 20 → 30. Go ahead?" in said[1]
    assert ended.stdout == f"{landed.topic}:0: 20 → 30, in version 2 of table {landed.table}\n"
    landed.run()
    assert landed.offsets() == [*range(20), *range(30, 40)]


@pytest.mark.parametrize(
    ("request_text", "words"),
    [
        ("{topic}:0", ("not TOPIC:PARTITION=OFFSET", "for example")),
        ("{topic}:0=-1", ("not TOPIC:PARTITION=OFFSET", "for example")),
        ("{topic}:7=0", ("Kafka has no such partition", "has 2 partitions")),
        ("elsewhere:0=0", ("no route takes topic elsewhere", "routes: events")),
        ("{topic}:0=21", ("Kafka ends at 20", "give 20 or less, or latest")),
    ],
)
def test_a_request_that_can_not_be_meant_is_refused(shown: Shop, request_text: str, words: tuple[str, ...]) -> None:
    """The line says what is wrong with it, and the table stays as it is."""
    before = shown.log

    ended = ingestor("offsets", shown.config, "--set", request_text.format(topic=shown.topic), "--yes")

    assert_last_line(ended, 2, *words)
    assert shown.log == before


def test_a_partition_can_not_be_set_twice(shown: Shop) -> None:
    """Which of the two is meant, nobody can tell."""
    before = shown.log

    requests = [part for to in ("latest", "20") for part in ("--set", f"{shown.topic}:0={to}")]
    ended = ingestor("offsets", shown.config, *requests, "--yes")

    assert_last_line(ended, 2, f"--set {shown.topic}:0=20: {shown.topic}:0 is set twice")
    assert shown.log == before


def test_there_is_no_lag_behind_the_last_committed_record(shop: Shop) -> None:
    """Transaction markers and aborted records are never landed; a committed record behind them is."""
    topics.transact(shop.bootstrap, shop.topic, [b"committed"])
    topics.transact(shop.bootstrap, shop.topic, [b"aborted"] * 3, end="abort")
    shop.run()

    def lag() -> int:
        (partition,) = json.loads(ingestor("offsets", shop.config, "--json").stdout)["partitions"]
        found: int = partition["lag"]
        return found

    assert lag() == 0
    topics.produce(shop.bootstrap, shop.topic, [b"late"] * 2)
    assert lag() == 2


# --- audit ------------------------------------------------------------------------------------------------------------


def test_an_audit_of_a_sound_table_says_so(shown: Shop) -> None:
    """The verdict is the last line on stdout."""
    ended = ingestor("audit", shown.config)

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == "events: audit: OK — 25 rows, 2 partitions, 1 file, 1 commit: every offset once\n"


def test_an_audit_as_json_is_one_object(shown: Shop) -> None:
    """A program reads the same from it, also what was compared with Kafka."""
    ended = ingestor("audit", shown.config, "--json", "--against-kafka")

    assert (ended.code, ended.stderr) == (0, "")
    report = json.loads(ended.stdout)["events"]
    assert (report["ok"], report["rows"], report["compared"], report["findings"]) == (True, 25, 25, [])


def test_an_audit_against_kafka_tells_how_many_records_are_equal(shown: Shop) -> None:
    """What has not landed yet is no fault."""
    ended = ingestor("audit", shown.config, "--against-kafka")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.endswith(": every offset once, 25 equal to Kafka's\n")


def _lose_a_file(table: Path) -> str:
    next(table.glob("*.parquet")).unlink()
    return "file_missing"


def _double_a_file(table: Path) -> str:
    """Let another program add a copy of the data file, as a careless restore might."""
    entry = table / "_delta_log" / f"{1:020d}.json"
    add = next(json.loads(line)["add"] for line in entry.read_text().splitlines() if "add" in json.loads(line))
    shutil.copy(table / add["path"], table / "copy.parquet")
    action = {"add": {**add, "path": "copy.parquet"}}
    entry.with_name(f"{2:020d}.json").write_text(json.dumps(action))
    return "duplicate"


@pytest.mark.parametrize("spoil", [_lose_a_file, _double_a_file])
def test_an_audit_of_a_spoilt_table_names_what_is_wrong(
    shown: Shop, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    """Each finding is a line on stdout; the last line on stderr counts them; the exit code is 3."""
    shutil.copytree(shown.table, tmp_path / "table")
    kind = spoil(tmp_path / "table")
    config = write_config(tmp_path, shown.bootstrap, shown.topic)

    text, as_json = ingestor("audit", config), ingestor("audit", config, "--json")

    report = json.loads(as_json.stdout)["events"]
    assert not report["ok"]
    assert kind in {finding["kind"] for finding in report["findings"]}, report["findings"]
    for finding in report["findings"]:
        assert f"events: finding ({finding['kind']}): {finding['sentence']}\n" in text.stdout, text.stdout
    for ended in (text, as_json):
        assert_last_line(ended, 3, f"the audit found {report['findings_total']} fault", "in events", "keep the table")


def test_an_audit_of_a_table_that_is_not_there_is_refused(shop: Shop) -> None:
    """There is nothing to prove, and nothing is created."""
    assert_last_line(ingestor("audit", shop.config), 2, f"there is no table at {shop.table}", "run the ingestor first")
    assert not shop.table.exists()


# --- locate -----------------------------------------------------------------------------------------------------------


def test_a_record_is_located(shown: Shop) -> None:
    """The file that is named holds it."""
    ended = ingestor("locate", shown.config, shown.topic, 1, 3)

    assert (ended.code, ended.stderr) == (0, "")
    where, file, commit = ended.stdout.splitlines()
    assert where == f"{shown.topic}:1 offset 3 is in table version 1"
    assert (shown.table / file.removeprefix("file:").strip()).is_file()
    assert re.match(r"landed: version 1, \d{4}-\d\d-\d\d ", commit)


def test_a_record_that_is_not_there_is_not_located(shown: Shop) -> None:
    """The line says why that may be."""
    ended = ingestor("locate", shown.config, shown.topic, 1, 5)

    assert_last_line(ended, 3, f"{shown.topic}:1 offset 5 is not in table {shown.table}", "`ingestor offsets`")
    assert ended.stdout == ""


def test_a_record_of_a_topic_without_a_route_is_not_looked_for(shown: Shop) -> None:
    """The line names the routes that there are."""
    assert_last_line(ingestor("locate", shown.config, "elsewhere", 0, 0), 2, "no route takes topic elsewhere", "events")


# --- what goes where --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["console", "json"])
def test_stdout_holds_nothing_but_the_result(shown: Shop, tmp_path: Path, style: str) -> None:
    """However much is logged, librdkafka's own words too, it is logged on stderr."""
    document = yaml.safe_load(shown.config.read_text())
    document["routes"]["events"]["table"] = str(shown.table)
    document["kafka"]["debug"] = "fetch"
    document["log"] = {"format": style, "level": "DEBUG"}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(document))

    ended = ingestor("audit", config, "--json", "--against-kafka")

    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout)["events"]["ok"]
    assert "FETCH" in ended.stderr
    if style == "json":
        assert all(json.loads(line)["event"] for line in ended.stderr.splitlines())


# --- other writers ----------------------------------------------------------------------------------------------------


def _take_slots(table: Path, *, before: int) -> None:
    """Let another program fill the log up to a version, with entries that say nothing."""
    log = table / "_delta_log"
    for slot in range(len(list(log.glob("*.json"))), before):
        (log / f"{slot:020d}.json").write_text(json.dumps({"commitInfo": {"operation": "NOTHING"}}))


@pytest.mark.faults
def test_a_run_that_ends_beside_a_checkpoint_ends_in_order(landed: Shop) -> None:
    """The checkpoint of version 100 is still being written when the process has nothing more to do."""
    _take_slots(landed.table, before=100)
    topics.produce(landed.bootstrap, landed.topic, RECORDS)

    landed.run()

    assert landed.log[-1] == f"{100:020d}.json"
    assert check_history(landed.bootstrap, [landed.topic], landed.table, "shop") == 2 * ROWS


class Hammer(Background):
    """Another program that takes slot after slot of a table's log, with entries that say nothing."""

    _PAUSE_SECONDS = 0.002  # from its look at the log to its own entry a commit needs longer than that

    def __init__(self, table: Path) -> None:
        super().__init__(self._take)
        self._log = table / "_delta_log"
        self._entry = table / "entry"
        self._entry.write_text(json.dumps({"commitInfo": {"operation": "NOTHING"}}))

    def _take(self) -> None:
        slot = len(list(self._log.glob("*.json")))
        while not self._ending.wait(self._PAUSE_SECONDS):
            with contextlib.suppress(FileExistsError):
                os.link(self._entry, self._log / f"{slot:020d}.json")  # whole or not at all
            slot += 1

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._entry.unlink()


@pytest.mark.faults
def test_other_writers_that_win_every_slot_end_it_with_5(kafka: Cluster, tmp_path: Path) -> None:
    """Nothing is lost by giving up: when they let go, the next start lands each record once."""
    shop = open_shop(kafka, tmp_path, flush={"rows": 10, "seconds": 0.1}, occ={"max_retries": 0})

    with Command("run", shop.config) as run:
        run.wait_for("committed")
        with Hammer(shop.table):  # one conflict is enough, and every batch is another chance of it
            topics.produce(kafka.bootstrap, shop.topic, RECORDS * 100)
            ended = run.end()

    assert_last_line(ended, 5, "other writers won 1 slot", "nothing was lost", "occ.max_retries")
    check_history(kafka.bootstrap, [shop.topic], shop.table, "shop", complete=False)
    shop.run()
    assert check_history(kafka.bootstrap, [shop.topic], shop.table, "shop") == 101 * ROWS
