"""The documents say what is so: every command runs, every table is the program's own, every link leads somewhere."""

from __future__ import annotations

import ast
import json
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pyarrow as pa
import pytest
import yaml
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from kubernetes_validate.utils import latest_version
from prometheus_client import CollectorRegistry

from ingestor.config.load import load
from ingestor.errors import ConfigError, DataLossError, IngestorError, OccExhaustedError, RefusedError
from ingestor.observe.gauges import Gauges, Standing
from ingestor.observe.metrics import Metrics
from ingestor.records import RawSchema
from tests.support.kafka import topics
from tests.support.process.command import Command, ingestor, refused
from tests.support.process.quick_java import quick_java
from tests.support.tools import config_table

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster

ROOT = Path(__file__).parents[2]
DOCS = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TOPIC = "user.events.v1"
RECORDS = 150  # in each of two partitions
KDI_RECORDS = 100  # that kafka-delta-ingest had landed of partition 0

# Commands that no test can run as they stand, and what proves them.
ELSEWHERE = {
    "make setup": (".ci/run", "make test"),
    "make demo": ("tests/integration/test_demo.py", "test_the_demo_needs_nothing_and_leaves_nothing"),
    "make test": (".ci/run", "make test"),
    "docker compose -f docker/compose.yaml up --build --detach": (
        "tests/operation/test_deployment_files.py",
        "test_compose_reads_the_file",
    ),
    "kubectl apply -k docker/kubernetes": ("tests/operation/test_deployment_files.py", "test_kustomize_builds_it"),
    "docker run --detach --publish 9092:9092 apache/kafka:4.1.0": ("docker/compose.yaml", "image: apache/kafka:4.1.0"),
    ". .venv/bin/activate": ("Makefile", "VENV := .venv\n"),
    "make lint": (".ci/run", "make lint"),
    "make release": ("tests/operation/test_release.py", "release.py"),
    "make model": ("tests/machine/test_model.py", "each_break_is_found_out"),
    **{f"make {name}": ("Makefile", f"{name}: setup ## ") for name in ("mutants", "soak", "bench", "bench-check")},
    "make help": ("Makefile", "help: ## "),
    ".venv/bin/python -m tests.mutants": ("Makefile", "-m tests.mutants"),
}
# Those that need a loss, a quarantine table or a JVM have tests of their own, which name them.
PROVEN = {
    "ingestor offsets orders.yaml --set user.events.v1:0=earliest --yes": (
        "tests/integration/test_guards.py",
        "test_after_a_loss_earliest_lands_all_that_is_left",
    ),
    "curl -s http://127.0.0.1:8080/readyz": ("tests/operation/test_kafka_away.py", "/readyz"),
    "ingestor init": ("tests/integration/test_init.py", "test_on_a_terminal_it_asks"),
    "ingestor status": ("tests/integration/test_status.py", "test_status_tells_how_a_process_is"),
    "ingestor dlq publish": ("tests/integration/test_dead_letters.py", "publish"),
    "ingestor dlq list": ("tests/integration/test_replay.py", "list"),
    "ingestor dlq replay": ("tests/integration/test_replay.py", "replay"),
    "python -m spark_jobs parse": ("tests/spark/test_end_to_end.py", "parse"),
    "python -m spark_jobs reparse": ("tests/spark/test_reparse.py", "reparse"),
    "python -m spark_jobs compact": ("tests/spark/test_maintenance.py", "compact"),
    "python -m spark_jobs vacuum": ("tests/spark/test_maintenance.py", "vacuum"),
    "python -m spark_jobs reset": ("tests/spark/test_maintenance.py", "reset"),
    "spark-submit": ("tests/spark/test_submitted.py", "__main__.py"),
}


def blocks(path: Path, language: str) -> list[str]:
    """Return a document's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def commands(path: Path) -> list[str]:
    """Return every command of a document, without comments."""
    lines = [line.partition(" #")[0].strip() for block in blocks(path, "sh") for line in block.splitlines()]
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def proven(command: str) -> tuple[str, str] | None:
    """Return which test proves a command that is not run here, and a word that stands in it."""
    if command.startswith(".venv/bin/pytest "):
        file, *rest = command.split()[1:]
        return file, rest[-1] if rest else "def test_"
    known = {**ELSEWHERE, **PROVEN}
    return next((known[start] for start in known if command == start or command.startswith(f"{start} ")), None)


@dataclass(frozen=True)
class World:
    """A folder in which the commands of a document are run as by a person."""

    folder: Path
    environ: dict[str, str]

    def run(self, command: str) -> str:
        """Run a command; return what it prints."""
        program, *words = shlex.split(command)
        assert program == "ingestor", f"nobody runs {command!r}: add it to ELSEWHERE, with what proves it"
        arguments = [str(self.folder / word) if word.endswith(".yaml") else word for word in words]
        if words[0] == "run" and "--once" not in words:
            with Command(*arguments, environ=self.environ) as started:
                started.wait_for("placed")
                started.signal(signal.SIGTERM)
                ended = started.end()
        else:
            ended = ingestor(*arguments, environ=self.environ)
        assert ended.code == 0, f"{command} ended with {ended.code}: {ended.last_line}"
        return ended.stdout


@pytest.fixture(scope="module")
def user_events(kafka: Cluster) -> str:
    """The topic that the documents speak of."""
    topics.create(kafka.bootstrap, TOPIC, partitions=2)
    records: list[topics.Record | bytes | None] = [
        topics.Record(value=b"%d" % number, partition=number % 2) for number in range(2 * RECORDS)
    ]
    topics.produce(kafka.bootstrap, TOPIC, records)
    return TOPIC


@pytest.fixture
def world(tmp_path: Path, kafka: Cluster, user_events: str) -> World:
    """README's own minimal configuration, on a broker of today."""
    document = yaml.safe_load(blocks(ROOT / "README.md", "yaml")[0])
    assert document["routes"]["user-events"]["topics"] == [user_events]
    document["kafka"] = {"bootstrap.servers": kafka.bootstrap, "group.id": topics.unique("docs")}
    document["http"] = {"port": 0}
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document))
    kdi = blocks(ROOT / "docs" / "migration.md", "yaml")[0]
    (tmp_path / "kdi.yaml").write_text(kdi + "http: {port: 0}\n")
    return World(tmp_path, {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})


def test_there_are_commands_to_test() -> None:
    assert sum(len(commands(path)) for path in DOCS) > 20


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_every_command_is_run_or_proven_elsewhere(path: Path) -> None:
    for command in commands(path):
        proof = proven(command)
        if proof is None:
            assert command.startswith("ingestor "), f"nobody runs {command!r}: add it to ELSEWHERE, with what proves it"
        else:
            file, word = proof
            assert word in (ROOT / file).read_text(), command


@pytest.mark.integration
@pytest.mark.parametrize("name", ["README", "operations", "alerts", "recovery", "guarantee"])
def test_the_commands_of_a_document_work(name: str, world: World) -> None:
    """In their order, on a table that holds what the topic holds."""
    (path,) = (path for path in DOCS if path.stem == name)
    done: set[str] = set()
    if name != "README":
        world.run("ingestor run orders.yaml --once")
    for command in commands(path):
        if proven(command) is None and "completion" not in command and command not in done:
            world.run(command)
            done.add(command)
    assert done


@pytest.mark.integration
def test_the_migration_works_as_it_is_written(world: World) -> None:
    """Its commands in order; kafka-delta-ingest's rows stay, and no record is there twice or missing."""
    table = leave_kdi_table(world.folder / "lake" / "kdi")
    for command in commands(ROOT / "docs" / "migration.md"):
        world.run(command)
    assert offsets(table) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}
    assert DeltaTable(table).transaction_version("orders-0") == RECORDS - 1
    assert DeltaTable(table).transaction_version("orders-1") == RECORDS - 1
    other = world.folder / "lake" / "raw" / "user-events"
    assert offsets(other) == {0: list(range(KDI_RECORDS, RECORDS)), 1: list(range(RECORDS))}


@pytest.mark.integration
def test_a_kdi_table_under_another_name_is_refused(world: World) -> None:
    """Reading it again would double its rows; the refusal names KDI's own app id."""
    leave_kdi_table(world.folder / "lake" / "kdi")
    config = (world.folder / "kdi.yaml").read_text().replace('txn_app_id: "{app_id}-{partition}"', "")
    (world.folder / "wrong.yaml").write_text(config)
    refused("run", world.folder / "wrong.yaml", "--once", code=2, words=["orders-0"], environ=world.environ)


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_getting_started_works_as_it_is_written(tmp_path: Path, kafka: Cluster) -> None:
    """Its commands, programs and additions to the file in order, down to the rows of silver."""
    page = ROOT / "docs" / "get-started.md"
    config = tmp_path / "shop.yaml"
    world = World(tmp_path, {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    said, printed = [], []
    for language, block in re.findall(r"^```(sh|python|yaml)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if language == "yaml":
            config.write_text(config.read_text() + block)
            continue
        if language == "python":
            printed.append(call(world, "-c", block))
            continue
        for command in block.splitlines():
            if command.startswith("python "):
                printed.append(call(world, *command.split()[1:]))
            elif command not in ELSEWHERE:
                said.append(world.run(command))
            if command.startswith("ingestor init "):
                config.write_text(f"{config.read_text()}http: {{port: 0}}\n")
    assert "every offset once" in said[-1]
    produced, raw, balance, silver = printed
    assert produced == ""
    assert sum(row["records"] for row in map(ast.literal_eval, raw.splitlines())) == 1000
    assert json.loads(balance.splitlines()[-1])["silver"] == 1000
    customers = [(row["customer"], row["orders"]) for row in map(ast.literal_eval, silver.splitlines())]
    assert customers == [(f"c{number}", 100) for number in range(10)]


def call(world: World, *arguments: str) -> str:
    """Run Python in the world's folder; return what it prints."""
    environ = {**quick_java(), **world.environ}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=world.folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def leave_kdi_table(path: Path) -> Path:
    """Write what kafka-delta-ingest leaves: rows, and in the same commit a txn `app_id-partition`."""
    rows: dict[str, list[Any]] = {
        "stream_topic": [TOPIC] * KDI_RECORDS,
        "stream_partition": [0] * KDI_RECORDS,
        "stream_offset": list(range(KDI_RECORDS)),
        "message_timestamp": [datetime.now(UTC)] * KDI_RECORDS,
        "message_payload": [b"%d" % (2 * number) for number in range(KDI_RECORDS)],
    }
    txn = Transaction("orders-0", KDI_RECORDS - 1, 1_700_000_000_000)
    schema = pa.schema(RawSchema().file)
    columns = [pa.array(rows[field.name], field.type) for field in schema]
    write_deltalake(
        path,
        pa.Table.from_arrays(columns, schema=schema),
        commit_properties=CommitProperties(app_transactions=[txn]),
    )
    return path


def offsets(table: Path) -> dict[int, list[int]]:
    """Return the offsets that a table holds, by partition."""
    found = DeltaTable(table).to_pyarrow_table(columns=["stream_partition", "stream_offset"]).to_pydict()
    by_partition: dict[int, list[int]] = {}
    for partition, offset in zip(*found.values(), strict=True):
        by_partition.setdefault(partition, []).append(offset)
    return {partition: sorted(found) for partition, found in by_partition.items()}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_every_configuration_shown_is_accepted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of one together with README's minimal one; a manifest by Kubernetes' own schema.

    A `parse` alone speaks of a route that the page's own configuration has.
    """
    minimal = yaml.safe_load(blocks(ROOT / "README.md", "yaml")[0])
    for block in blocks(path, "yaml"):
        for name in re.findall(r"\$\{(\w+)\}", block):
            monkeypatch.setenv(name, "set")
        document = yaml.safe_load(block)
        if "apiVersion" in document:
            kubernetes_validate.validate(document, latest_version(), strict=True)
            continue
        shown = tmp_path / "shown.yaml"
        (route,) = minimal["routes"].values()
        routes = {"routes": {name: route}} if (name := next(iter(document.get("parse", {})), None)) else {}
        shown.write_text(yaml.safe_dump({**minimal, **routes, **document}))
        load(shown)


def test_the_configuration_table_is_that_of_the_settings() -> None:
    """Every key and its default; `python -m tests.support.tools.config_table` mends keys and defaults."""
    shown = config_table.written()
    assert {key: default.strip("`") for key, (default, _) in shown.items()} == config_table.rows()
    assert all(text.strip() for _, text in shown.values())


def test_the_metrics_table_is_that_of_the_metrics() -> None:
    counted = (ROOT / "docs" / "operations.md").read_text().partition("### Levels for alerts")[0]
    table = re.findall(r"^\| `(ingestor_\w+)` \|", counted, re.MULTILINE)
    metrics = Metrics()
    named = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()
    }
    assert {name.replace("ingestor_build", "ingestor_build_info") for name in named} == set(table)


def test_every_exit_code_has_its_page_and_its_line() -> None:
    codes = {
        0,
        *(kind.exit_code for kind in (IngestorError, ConfigError, DataLossError, RefusedError, OccExhaustedError)),
    }
    runbook = (ROOT / "docs" / "operations.md").read_text()
    for code in codes:
        assert f"### Exit {code}\n" in runbook
        assert re.search(rf"^\| {code} \| ", runbook, re.MULTILINE)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_readme_is_a_front_door() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("package", ["ingestor", "spark_jobs"])
def test_contributing_names_every_room(package: str) -> None:
    tables = (ROOT / "CONTRIBUTING.md").read_text().partition("## Run one test")[0]
    rooms = {path.parent.name for path in (ROOT / package).glob("*/**/__init__.py")}
    assert rooms - set(re.findall(r"`(\w+)/`", tables)) == set()


def test_the_glossary_is_short_and_says_each_word_once() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| word | means | not |\n|---|---|---|\n")[2]
    words = [word for row in table.splitlines() for word in row.split("|")[1].strip().split(", ")]
    assert len(table.splitlines()) <= 25
    assert len(words) == len(set(words))


def test_screenshots_are_small() -> None:
    for image in (ROOT / "docs").glob("*.png"):
        assert image.stat().st_size < 100_000


def test_the_table_of_levels_is_that_of_the_gauges() -> None:
    levels = (ROOT / "docs" / "operations.md").read_text().partition("### Levels for alerts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`ingestor_[^|]*) \|", levels, re.MULTILINE)
    gauges = Gauges(CollectorRegistry(), lambda: Standing(kafka_up=True, memory_bytes=0, memory_limit_bytes=0))
    named = {f"{family.name}_total" if family.type == "counter" else family.name for family in gauges.collect()}
    assert {name for row in rows for name in re.findall(r"ingestor_\w+", row)} == named
