"""Whatever is wrong outside, the command line says it in one line with a way out, ends in time, and spoils nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.judge.history import check_history
from tests.support.kafka import topics
from tests.support.process.command import Command, Ended, ingestor, refused, write_config
from tests.support.process.ingestors import eventually
from tests.support.stores.disk import PAGE_BYTES, Disk
from tests.support.stores.tcpproxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.integration

NOBODY = "127.0.0.1:1"  # no broker listens there
ONCE_SECONDS = 30  # how long `run --once` waits for what is not there
STOP_SECONDS_MAX = 10
SOME = [b"%d" % number for number in range(20)]


def assert_refused(ended: Ended, code: int, *words: str) -> None:
    """Assert that it said in one line what happened and what to do, and ended with an exit code."""
    line = ended.last_line
    assert ended.code == code, f"exit code {ended.code}:\n{ended.stderr}"
    assert "Traceback" not in ended.stderr, ended.stderr
    assert line.startswith("ingestor: "), ended.stderr
    assert all(word in line for word in words), f"{words} are not all in: {line}"
    what, _, hint = line.partition(" — ")
    assert what, f"what happened? {line}"
    assert hint, f"what to do? {line}"


def check_and_run(config: Path, *, starts: int = 1, **how: Any) -> tuple[Ended, Ended]:
    """Run `check` and `run --once` beside each other; return what is left of each.

    With more starts, as by a supervisor, each has to end as the one before.
    """
    codes = set()
    for _ in range(starts):
        with Command("check", config, **how) as check, Command("run", config, "--once", **how) as run:
            checked, ran = check.end(), run.end()
        codes.add((checked.code, ran.code))
    assert len(codes) == 1, f"a refusal wears off: {codes}"
    return checked, ran


def tree(folder: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return all that a folder holds: the bytes of files, and when something was last changed."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def make_topic(kafka: Cluster, records: list[bytes] = SOME) -> str:
    """Create a topic with some records; return its name."""
    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, records)
    return topic


# --- the configuration ------------------------------------------------------------------------------------------------

GOOD = """\
app_id: shop
kafka: {bootstrap.servers: "127.0.0.1:1", group.id: shop}
routes: {events: {topics: [events], table: ./table}}
http: null
"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        pytest.param(
            "table: ./table",
            "table: ./table, flsh: {seconds: 1}",
            ("routes.events.flsh: unknown key", "did you mean flush?"),
            id="unknown key",
        ),
        pytest.param(
            "table: ./table",
            "table: ./table, flush: {seconds: soon}",
            ('routes.events.flush.seconds: "soon"', "write seconds, or a number with a unit"),
            id="wrong type",
        ),
        pytest.param("[events]", "[events", ("line 3, column", "correct the YAML there"), id="YAML syntax"),
        pytest.param(
            "app_id: shop",
            "app_id: ${INGESTOR_TEST_SHOP}",
            ("app_id: environment variable INGESTOR_TEST_SHOP is not set", "${INGESTOR_TEST_SHOP:-default}"),
            id="environment",
        ),
        pytest.param(
            "group.id: shop",
            "group.id: shop, enable.auto.commit: true",
            ("kafka.enable.auto.commit: must be false", "leave it out"),
            id="breaks the guarantee",
        ),
        pytest.param(
            "group.id: shop",
            "group.id: shop, socket.timeout.sm: 5000",
            ("kafka: ", "socket.timeout.sm", "correct that key under kafka"),
            id="unknown to librdkafka",
        ),
        pytest.param(
            "group.id: shop",
            "group.id: shop, fetch.wait.max.ms: soon",
            ("kafka: ", "fetch.wait.max.ms", "correct that key under kafka"),
            id="refused by librdkafka",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_is_touched(
    tmp_path: Path, right: str, wrong: str, words: tuple[str, ...]
) -> None:
    """The line names the key and the way out, and neither Kafka nor the table is asked first."""
    config = tmp_path / "config.yaml"
    config.write_text(GOOD.replace(right, wrong))

    for ended in check_and_run(config):
        assert_refused(ended, 2, *words)

    assert list(tmp_path.iterdir()) == [config]


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The line names the path that was given."""
    config = tmp_path / "missing.yaml"

    for ended in check_and_run(config):
        assert_refused(ended, 2, f"{config}: can't be read: No such file", "give the path")


# --- Kafka ------------------------------------------------------------------------------------------------------------


def test_a_missing_topic_fails_the_check(kafka: Cluster, tmp_path: Path) -> None:
    """It is the configuration that is wrong, and no table is made for it."""
    config = write_config(tmp_path, kafka.bootstrap, "nowhere")

    ended = ingestor("check", config)

    assert_refused(ended, 2, "topic nowhere does not exist", "create it")
    assert "ok    kafka: " in ended.stdout
    assert "FAIL  topics of events: topic nowhere does not exist" in ended.stdout
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("no command is given", "`ingestor --help`")),
        (("--bogus",), ("No such option: --bogus", "`ingestor --help`")),
        (("bogus",), ("No such command 'bogus'", "`ingestor --help`")),
        (("run",), ("Missing argument 'config'", "`ingestor run --help`")),
        (("dlq",), ("no command is given", "`ingestor dlq --help`")),
        (("dlq", "list", "x.yaml", "--limit", "many"), ("Invalid value for '--limit'", "`ingestor dlq list --help`")),
    ],
)
def test_a_command_line_that_can_not_be_meant_is_refused(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    """In the same way as everything else: one last line that says what to do."""
    assert_refused(ingestor(*arguments), 2, *words)


def test_who_can_not_wait_for_ever_gives_up(kafka: Cluster, tmp_path: Path) -> None:
    """`run --once` waits 30 seconds for a topic or a broker, `check` only for its answer."""
    no_topic = write_config(tmp_path / "topic", kafka.bootstrap, "nowhere")
    no_broker = write_config(tmp_path / "broker", NOBODY, "nowhere")

    with (
        Command("run", no_topic, "--once") as topic,
        Command("run", no_broker, "--once") as broker,
        Command("check", no_broker) as check,
    ):
        checked, without_topic, without_broker = check.end(), topic.end(), broker.end()

    assert_refused(checked, 4, "kafka: ", f"no broker at {NOBODY} can be reached", "see that it runs")
    assert "Connection refused" in checked.stderr, "librdkafka tells more, and is heard"
    assert_refused(without_topic, 2, "topic nowhere does not exist", "create it")
    assert_refused(without_broker, 4, f"Kafka at {NOBODY} does not answer", "start the broker")
    assert checked.seconds < ONCE_SECONDS / 2
    for ended in (without_topic, without_broker):
        assert ONCE_SECONDS <= ended.seconds < ONCE_SECONDS + 15
        assert ended.stderr.count("waiting") >= 2, "a person who looks has to see that it waits"
    assert not (tmp_path / "topic" / "table").exists()
    assert not (tmp_path / "broker" / "table").exists()


def test_run_waits_for_a_topic_and_begins_when_it_appears(kafka: Cluster, tmp_path: Path) -> None:
    """A topic may come later than its ingestor, which says what it waits for."""
    topic = topics.unique()
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"seconds": 0.2})

    with Command("run", config) as run:
        run.wait_for(f"topic {topic} does not exist yet")
        topics.create(kafka.bootstrap, topic)
        topics.produce(kafka.bootstrap, topic, SOME)
        run.wait_for("committed")
        run.signal(signal.SIGTERM)
        ended = run.end()

    assert ended.code == 0, ended.stderr
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)


def test_run_waits_for_a_broker_and_begins_when_it_answers(kafka: Cluster, tmp_path: Path) -> None:
    """A broker may come up later than its ingestor, which says what it waits for."""
    topic = make_topic(kafka)
    with TcpProxy(int(kafka.bootstrap.rpartition(":")[2])) as proxy:
        proxy.refuse()
        config = write_config(tmp_path, proxy.address, topic, flush={"seconds": 0.2})

        with Command("run", config) as run:
            run.wait_for("Kafka does not answer")
            proxy.heal()
            run.wait_for("committed")
            run.signal(signal.SIGTERM)
            ended = run.end()

    assert ended.code == 0, ended.stderr
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)


def test_a_run_that_waits_for_a_broker_can_be_stopped(tmp_path: Path) -> None:
    """Nobody has to kill a process because Kafka is down."""
    config = write_config(tmp_path, NOBODY, "events")

    with Command("run", config) as run:
        run.wait_for("Kafka does not answer")
        run.signal(signal.SIGTERM)
        ended = run.end(STOP_SECONDS_MAX)

    assert ended.code == 0, ended.stderr
    assert not (tmp_path / "table").exists()


def test_of_two_processes_with_one_instance_id_the_first_is_told_to_go(kafka: Cluster, tmp_path: Path) -> None:
    """Kafka lets the newcomer in and fences the other, which ends with a line that says why; no row is doubled."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, kafka={"group.instance.id": "same"}, flush={"seconds": 0.2})

    with Command("run", config) as first:
        first.wait_for("committed")
        with Command("run", config) as second:
            fenced = first.end()
            assert_refused(fenced, 4, "another process uses the same group.instance.id", "give each process its own")
            topics.produce(kafka.bootstrap, topic, SOME)
            second.wait_for("committed")
            second.signal(signal.SIGTERM)
            assert second.end().code == 0

    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == 2 * len(SOME)


def test_a_record_of_20_megabytes_lands(kafka: Cluster, tmp_path: Path) -> None:
    """What a broker takes, the table gets, between its neighbours and byte for byte."""
    topic = make_topic(kafka)
    topics.produce(kafka.bootstrap, topic, [os.urandom(20 << 20)], {"message.max.bytes": 30 << 20})
    topics.produce(kafka.bootstrap, topic, SOME)

    ended = ingestor("run", write_config(tmp_path, kafka.bootstrap, topic), "--once")

    assert ended.code == 0, ended.stderr
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == 2 * len(SOME) + 1


# --- the place of the table -------------------------------------------------------------------------------------------


def _a_file(folder: Path) -> Path:
    (folder / "taken").write_text("something else")
    return folder / "taken"


def _below_a_file(folder: Path) -> Path:
    return _a_file(folder) / "table"


def _in_a_folder_of_others(folder: Path) -> Path:
    (folder / "theirs").mkdir(mode=0o555)
    return folder / "theirs" / "table"


@pytest.mark.parametrize(
    ("make", "checked", "ran"),
    [
        (_a_file, ("the path is a file", "another table path"), ("the path is a file", "another table path")),
        (_below_a_file, ("is a file", "another table path"), ("a part of the path is a file", "choose a table path")),
        (_in_a_folder_of_others, ("can't be written", "write access"), ("access is denied", "write access")),
    ],
)
def test_a_place_that_can_not_hold_a_table_is_refused(
    kafka: Cluster, tmp_path: Path, make: Callable[[Path], Path], checked: tuple[str, ...], ran: tuple[str, ...]
) -> None:
    """The line names the place and what is wrong with it; whatever is there stays as it is."""
    table = make(tmp_path)
    config = write_config(tmp_path, kafka.bootstrap, make_topic(kafka), table=table)
    before = tree(tmp_path)

    check, run = check_and_run(config, starts=3, bound=True)

    assert_refused(check, 4, str(table), *checked)
    assert_refused(run, 4, str(table), *ran)
    assert tree(tmp_path) == before


def test_a_table_that_may_only_be_read_is_left_as_it_is(kafka: Cluster, tmp_path: Path) -> None:
    """Rights that were taken away later are told like those that were never there; given back, all goes on."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic)
    assert ingestor("run", config, "--once").code == 0
    topics.produce(kafka.bootstrap, topic, SOME)
    folders = (tmp_path / "table", tmp_path / "table" / "_delta_log")
    before = tree(tmp_path)

    for folder in folders:
        folder.chmod(0o555)
    check, run = check_and_run(config, starts=3, bound=True)
    for folder in folders:
        folder.chmod(0o755)

    assert_refused(check, 4, "can't be written by this user", "write access")
    assert_refused(run, 4, "access is denied", "write access")
    assert tree(tmp_path) == before
    assert ingestor("run", config, "--once").code == 0
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == 2 * len(SOME)


def test_a_read_only_file_system_is_refused(kafka: Cluster, tmp_path: Path) -> None:
    """It is told from missing rights, which would be mended in another way."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, table="disk/table")

    with Disk(tmp_path / "disk", size="1m") as disk:
        disk.remount("ro")
        check, run = check_and_run(config, starts=3, under=disk.under)

        assert disk.run("ls", str(disk.folder)) == ""

    assert_refused(check, 4, "read-only", "mount it writable")
    assert_refused(run, 4, "the file system is read-only", "mount it writable")


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize(
    ("free_bytes", "records"),
    [
        pytest.param(0, SOME, id="nothing fits"),
        pytest.param(PAGE_BYTES, SOME, id="the data file fits, the log entry does not"),
        pytest.param(1 << 20, [*(os.urandom(5000) for _ in range(300))], id="some files fit"),
    ],
)
def test_a_full_disk_loses_no_row(kafka: Cluster, tmp_path: Path, free_bytes: int, records: list[bytes]) -> None:
    """It ends with a hint and a sound table, and when there is space again each record is there once."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, table="disk/table", flush={"rows": 100})

    with Disk(tmp_path / "disk", size="4m") as disk:
        assert ingestor("run", config, "--once", under=disk.under).code == 0
        topics.produce(kafka.bootstrap, topic, records)
        disk.leave(free_bytes)
        full = refused("run", config, "--once", code=4, words=["the disk is full", "free space"], under=disk.under)
        then = disk.copy_out("table", tmp_path / "then")

        disk.remount("size=20m")
        after = ingestor("run", config, "--once", under=disk.under)
        now = disk.copy_out("table", tmp_path / "now")

    assert_refused(full, 4)
    check_history(kafka.bootstrap, [topic], then, "shop", complete=False)
    assert after.code == 0, after.stderr
    check_history(kafka.bootstrap, [topic], now, "shop")


# --- a table that is not ours, or not well ----------------------------------------------------------------------------

COLUMNS = {
    "stream_topic": ("string", False),
    "stream_partition": ("integer", False),
    "stream_offset": ("long", False),
    "message_timestamp": ("timestamp", True),
    "message_payload": ("binary", True),
}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A table as another program may have made it; without more it is like one of ours."""

    columns: Mapping[str, tuple[str, bool]] = field(default_factory=lambda: COLUMNS)
    partitioned_by: tuple[str, ...] = ()
    reader: int = 1
    writer: int = 2
    features: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def make(self, path: Path) -> None:
        """Write the table's first log entry."""
        features = {}
        if self.writer >= 7:
            features["writerFeatures"] = list(self.features)
        if self.reader >= 3:
            features["readerFeatures"] = list(self.features)
        schema = {
            "type": "struct",
            "fields": [self._field(number, name) for number, name in enumerate(self.columns, 1)],
        }
        actions: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": self.reader, "minWriterVersion": self.writer, **features}},
            {
                "metaData": {
                    "id": "another",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": list(self.partitioned_by),
                    "configuration": dict(self.properties),
                }
            },
        ]
        log = path / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))

    def _field(self, number: int, name: str) -> dict[str, Any]:
        kind, nullable = self.columns[name]
        mapped = "delta.columnMapping.mode" in self.properties
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name} if mapped else {}
        return {"name": name, "type": kind, "nullable": nullable, "metadata": names}


def _without(name: str) -> dict[str, tuple[str, bool]]:
    return {known: kind for known, kind in COLUMNS.items() if known != name}


RETENTION = "delta.setTransactionRetentionDuration"
KEEPS = "the ingestor keeps 1/2 without table features"


@dataclass(frozen=True)
class Difference:
    """A table that is not ours, the route that wants it all the same, and what is said of it."""

    foreign: Foreign
    words: tuple[str, ...]
    route: Mapping[str, Any] = field(default_factory=dict)


DIFFERENCES = {
    "missing": Difference(
        Foreign(columns=_without("message_payload")),
        ("another schema: message_payload is missing", "extra_columns"),
    ),
    "not-ours": Difference(
        Foreign(columns={**COLUMNS, "note": ("string", True)}),
        ("another schema: note is not ours", "a new table"),
    ),
    "extra-not-configured": Difference(
        Foreign(columns={**COLUMNS, "message_key": ("binary", True)}),
        ("another schema: message_key is not ours", "extra_columns"),
    ),
    "extra-not-there": Difference(
        Foreign(),
        ("another schema: message_key is missing", "extra_columns"),
        route={"extra_columns": ["key"]},
    ),
    "another-type": Difference(
        Foreign(columns={**COLUMNS, "stream_offset": ("integer", False)}),
        ("another schema: stream_offset is integer, not long", "a new table"),
    ),
    "no-nulls": Difference(
        Foreign(columns={**COLUMNS, "message_payload": ("binary", False)}),
        ("forbids nulls in message_payload", "DROP NOT NULL"),
    ),
    "partitioned": Difference(
        Foreign(partitioned_by=("stream_topic",)),
        ("is partitioned by ['stream_topic'], not by []", "a new table"),
    ),
    "not-partitioned": Difference(
        Foreign(columns={**COLUMNS, "ingest_date": ("date", True)}),
        ("is partitioned by [], not by ['ingest_date']", "partition_by"),
        route={"partition_by": ["ingest_date"]},
    ),
    "deletion-vectors": Difference(
        Foreign(reader=3, writer=7, features=("deletionVectors",)),
        ("has protocol 3/7 with deletionVectors", KEEPS, "DROP FEATURE"),
    ),
    "column-mapping": Difference(
        Foreign(
            reader=2,
            writer=5,
            properties={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"},
        ),
        ("has protocol 2/5", KEEPS, "a new table"),
    ),
    "writer-features": Difference(
        Foreign(writer=7, features=("appendOnly",)),
        ("has protocol 1/7 with appendOnly", KEEPS, "DROP FEATURE"),
    ),
    "feature-of-tomorrow": Difference(
        Foreign(reader=3, writer=7, features=("ofTomorrow",)),
        ("ofTomorrow", "a new table"),
    ),
    "expiring-txns": Difference(
        Foreign(properties={RETENTION: "interval 7 days"}),
        (RETENTION, "UNSET TBLPROPERTIES"),
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_table_that_is_not_ours_is_refused_untouched(kafka: Cluster, tmp_path: Path, name: str) -> None:
    """The line names the difference and a way out, and the table stays as it is."""
    difference = DIFFERENCES[name]
    difference.foreign.make(tmp_path / "table")
    config = write_config(tmp_path, kafka.bootstrap, make_topic(kafka), **difference.route)
    before = tree(tmp_path)

    ended = refused("run", config, "--once", code=4, words=[str(tmp_path / "table"), *difference.words])

    assert_refused(ended, 4)
    assert tree(tmp_path) == before


def test_the_check_tells_of_every_table_that_is_not_ours(kafka: Cluster, tmp_path: Path) -> None:
    """One run of it shows all that has to be mended, a line for each."""
    for name, difference in DIFFERENCES.items():
        difference.foreign.make(tmp_path / name)
    config = write_config(tmp_path, kafka.bootstrap, "unused")
    document = yaml.safe_load(config.read_text())
    document["routes"] = {
        name: {"topics": [make_topic(kafka)], "table": name, **difference.route}
        for name, difference in DIFFERENCES.items()
    }
    config.write_text(yaml.safe_dump(document))
    before = tree(tmp_path)

    ended = ingestor("check", config)

    assert_refused(ended, 4)
    for name, difference in DIFFERENCES.items():
        line = next(line for line in ended.stdout.splitlines() if f" table of {name}: " in line)
        assert line.startswith("FAIL"), line
        assert all(word in line for word in difference.words), line
    assert tree(tmp_path) == before


def test_a_table_that_is_like_ours_is_taken(kafka: Cluster, tmp_path: Path) -> None:
    """What the tests above change is all that made them fail."""
    Foreign().make(tmp_path / "table")
    topic = make_topic(kafka)

    for ended in check_and_run(write_config(tmp_path, kafka.bootstrap, topic)):
        assert ended.code == 0, ended.stderr

    check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop")


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _text: b"",
    "in a line": lambda text: text[: len(text) // 2],
    "at a line's end": lambda text: b"".join(text.splitlines(keepends=True)[:-1]),
}


@pytest.mark.faults
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_torn_newest_log_entry_is_refused_until_it_is_repaired(
    kafka: Cluster, tmp_path: Path, cut: Callable[[bytes], bytes]
) -> None:
    """What a power cut may leave is refused by every command, names `repair`, and after that all goes on."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"rows": len(SOME) // 2})
    assert ingestor("run", config, "--once").code == 0
    log = tmp_path / "table" / "_delta_log"
    newest, earlier = log / f"{2:020d}.json", log / f"{1:020d}.json"
    newest.write_bytes(cut(newest.read_bytes()))
    torn, acknowledged, before = newest.read_bytes(), earlier.read_bytes(), tree(tmp_path)

    commands: list[tuple[object, ...]] = [(name, config) for name in ("check", "offsets", "audit")]
    commands += [("run", config, "--once"), ("locate", config, topic, 0, 0)]
    with ThreadPoolExecutor(2) as pool:
        for ended in pool.map(lambda arguments: ingestor(*arguments), commands * 2):
            assert_refused(ended, 4, f"_delta_log/{newest.name} is damaged", "`ingestor repair CONFIG`")
    for _ in range(2):
        told = ingestor("repair", config)
        assert told.code == 0, told.stderr
        assert "would be set aside" in told.stdout
    assert tree(tmp_path) == before

    told = ingestor("repair", config, "--yes", "--route", "events")
    assert told.code == 0, told.stderr
    assert not newest.exists()
    (aside,) = log.glob("_torn_*")
    assert aside.name in told.stdout
    assert aside.read_bytes() == torn

    assert ingestor("run", config, "--once").code == 0
    assert earlier.read_bytes() == acknowledged
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)
    assert ingestor("audit", config, "--against-kafka").code == 0
    assert "nothing to repair" in ingestor("repair", config, "--yes").stdout


@pytest.mark.faults
def test_repair_refuses_what_it_can_not_prove(kafka: Cluster, tmp_path: Path) -> None:
    """An entry that others were built on was acknowledged; setting it aside would leave a gap."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"rows": len(SOME) // 2})
    assert ingestor("run", config, "--once").code == 0
    entry = tmp_path / "table" / "_delta_log" / f"{1:020d}.json"
    entry.write_bytes(b"")
    before = tree(tmp_path)
    for _ in range(2):
        assert_refused(ingestor("repair", config, "--yes"), 4, "not the newest", "restore")
    assert_refused(ingestor("repair", config, "--route", "nobody"), 2, "there is no route nobody")
    assert tree(tmp_path) == before


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lands_all_that_was_polled(kafka: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    """Nothing was due yet; it is committed all the same, the process ends with 0, and soon."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"seconds": 600})
    _serve_http(config)

    with Command("run", config) as run:
        _wait_until_polled(run, len(SOME))
        assert "committed" not in run.stderr
        run.signal(number)
        ended = run.end(STOP_SECONDS_MAX)

    assert ended.code == 0, ended.stderr
    assert f"stopped rows={len(SOME)}" in ended.stderr
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)


# What a login shell does: a session of its own, whose terminal is that on which it speaks.
_ON_A_TERMINAL = """
import os, sys
os.setsid()
os.close(os.open(os.ttyname(2), os.O_RDWR))
os.execv(sys.executable, [sys.executable, "-m", "ingestor", *sys.argv[1:]])
"""


def test_a_terminal_that_closes_ends_it_in_order(kafka: Cluster, tmp_path: Path) -> None:
    """SIGHUP comes when nobody can read any more what is said; what was polled lands all the same."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"seconds": 600})
    _serve_http(config)
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", _ON_A_TERMINAL, "run", str(config)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        try:
            os.close(theirs)
            said = ""
            while (found := re.search(r"http://[0-9.:]+", said)) is None:
                said += os.read(ours, 65536).decode()
            eventually(lambda: _position(found[0]) == len(SOME))
            os.close(ours)
            assert process.wait(STOP_SECONDS_MAX) == 0
        finally:
            process.kill()

    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)


def test_a_second_signal_ends_at_once(kafka: Cluster, tmp_path: Path) -> None:
    """What was not committed is not lost: the line says so, and the next start reads it again."""
    topic = make_topic(kafka)
    config = write_config(tmp_path, kafka.bootstrap, topic, flush={"seconds": 600})
    _serve_http(config)

    with Command("run", config) as run:
        _wait_until_polled(run, len(SOME))
        run.signal(signal.SIGSTOP)  # so that it finds both when it goes on
        run.signal(signal.SIGTERM)
        run.signal(signal.SIGINT)
        run.signal(signal.SIGCONT)
        ended = run.end(STOP_SECONDS_MAX)

    assert ended.code == 1, ended.stderr
    assert ended.last_line.startswith("ingestor: stopped at once; what was not committed is read again")
    check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop", complete=False)
    # Another group: this one still counts with its dead member until that one's session times out.
    again = write_config(tmp_path, kafka.bootstrap, topic, kafka={"group.id": f"{topic}-again"})
    assert ingestor("run", again, "--once").code == 0
    assert check_history(kafka.bootstrap, [topic], tmp_path / "table", "shop") == len(SOME)


def _serve_http(config: Path) -> None:
    """Let it show what it does, at any free port."""
    config.write_text(config.read_text().replace("http: null", "http: {port: 0}"))


def _wait_until_polled(run: Command, records: int) -> None:
    """Return when it has all records of the one partition in hand, as it says itself."""
    run.wait_for("http=http")
    url = next(word for word in run.stderr.split() if word.startswith("http=")).removeprefix("http=")
    run.wait_until(lambda: _position(url) == records, f"position {records}")


def _position(url: str) -> int:
    with urllib.request.urlopen(f"{url}/api/status", timeout=5) as answer:  # noqa: S310 - loopback
        routes = json.load(answer)["routes"]
    return max((one["position"] for route in routes.values() for one in route["partitions"]), default=0)


def test_a_folder_whose_name_is_another_one_to_delta_rs_is_refused(tmp_path: Path) -> None:
    """It would write to `a%41b` and read from `aAb`; the configuration's own folder counts too."""
    config = write_config(tmp_path / "a%41b", NOBODY, "t")
    before = tree(tmp_path)
    for _ in range(2):
        for ended in check_and_run(config):
            assert_refused(ended, 2, "table", "%41", "rename that folder")
    assert tree(tmp_path) == before
