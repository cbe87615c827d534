"""The Dockerfiles, run without a container engine: their own commands in a scratch folder, their own entry points."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import image
from ingestor.kafka.native.library import LIBRARY
from tests.support.kafka import topics
from tests.support.process.ingestors import eventually
from tests.support.tools import dockerfile

if TYPE_CHECKING:
    from tests.support.kafka.cluster import Cluster
    from tests.support.tools.dockerfile import Stage

ROOT = Path(__file__).parents[2]
FILES = {name: ROOT / "docker" / f"{name}.Dockerfile" for name in ("ingest", "spark")}
BUILD_SECONDS_MAX = 300


@pytest.fixture(params=FILES)
def stages(request: pytest.FixtureRequest) -> list[Stage]:
    return dockerfile.read(FILES[request.param])


def test_hadolint_finds_nothing() -> None:
    """The linter of Dockerfiles, from its wheel."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint has no wheel for this machine")
    done = subprocess.run([hadolint, *FILES.values()], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_image_is_pinned_runs_as_nobody_and_without_a_shell(stages: list[Stage]) -> None:
    final = stages[-1]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", final.base)
    assert {stage.base.replace("-slim", "") for stage in stages} == {final.base.replace("-slim", "")}
    assert final.all("USER") == ["10001:10001"]
    assert final.exec_form("ENTRYPOINT")[0].startswith("/opt/ingestor/bin/")
    assert final.exec_form("CMD")
    assert final.all("HEALTHCHECK")


def test_what_is_copied_is_there_and_is_sent_to_the_build(stages: list[Stage]) -> None:
    """What .dockerignore leaves out can't be copied."""
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for sources, _ in stages[0].copies():
        for source in sources:
            assert (ROOT / source).exists()
            assert any(fnmatch.fnmatch(source, pattern) or source.startswith(f"{pattern}/") for pattern in sent)


def test_the_ingest_image_installs_neither_java_nor_spark() -> None:
    text = FILES["ingest"].read_text()
    assert "jre" not in text
    assert "pyspark" not in (ROOT / "requirements" / "ingest.txt").read_text()
    assert "pyspark==" in (ROOT / "requirements" / "spark.txt").read_text()


def test_the_ingest_image_installs_the_allocator_that_it_preloads() -> None:
    """Else the loader would complain at every start, and go without."""
    final = dockerfile.read(FILES["ingest"])[-1]
    assert final.environ()["LD_PRELOAD"] == "libtcmalloc_minimal.so.4"
    assert "apt-get install -y --no-install-recommends libtcmalloc-minimal4 " in " ".join(final.all("RUN"))


def build(stage: Stage, folder: Path) -> Path:
    """Do what a build stage does, with `folder` in place of the root; return where it installs to."""
    work = folder / "src"
    for keyword, arguments in stage.instructions:
        if keyword == "COPY":
            copy(arguments.split(), work)
        elif keyword == "RUN":
            # Wheels may come from pip's cache here: in an image it would only take space.
            command = arguments.replace("/opt/", f"{folder}/opt/").replace("--no-cache-dir ", "")
            environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            done = subprocess.run(
                ["sh", "-ec", command],
                cwd=work,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
                timeout=BUILD_SECONDS_MAX,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        else:
            assert (keyword, arguments) == ("WORKDIR", "/src")
            work.mkdir()
    return folder / "opt" / "ingestor"


def copy(words: list[str], work: Path) -> None:
    *sources, target = words
    for source in sources:
        found = ROOT / source
        if found.is_dir():
            shutil.copytree(found, work / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (work / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(found, work / target)


@pytest.mark.integration
@pytest.mark.timeout(BUILD_SECONDS_MAX)
def test_the_ingest_image_builds_and_its_entry_point_ingests(tmp_path: Path, kafka: Cluster) -> None:
    """Until SIGTERM, healthy meanwhile, and writing nothing but the table; with the allocator, if it is here."""
    stages = dockerfile.read(FILES["ingest"])
    installed = build(stages[0], tmp_path)
    assert not list(installed.rglob("pyspark"))
    assert list(installed.rglob(LIBRARY.name)) or shutil.which("cc") is None
    before = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}

    topic = topics.create(kafka.bootstrap)
    topics.produce(kafka.bootstrap, topic, [b"x"] * 10)
    config = tmp_path / "config.yaml"
    config.write_text(
        f'app_id: a\nkafka: {{bootstrap.servers: "{kafka.bootstrap}", group.id: {topic}}}\nhttp: {{port: 0}}\n'
        f"routes: {{r: {{topics: [{topic}], table: ./table, flush: {{seconds: 0.5}}}}}}\n"
    )
    final = stages[-1]
    entry, command = final.exec_form("ENTRYPOINT"), final.exec_form("CMD")
    arguments = [word.replace("/opt/", f"{tmp_path}/opt/") for word in entry]
    arguments += [word.replace("/etc/ingestor/config.yaml", str(config)) for word in command]
    log = tmp_path / "log"
    with log.open("wb") as out:
        allocator = image.environ()
        environ = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **allocator}
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ, cwd=tmp_path
        )
    try:
        eventually(lambda: "committed" in log.read_text(), failure=log.read_text)
        assert "intake=native" in log.read_text() or shutil.which("cc") is None
        if allocator:
            assert final.environ()["LD_PRELOAD"] in Path(f"/proc/{process.pid}/maps").read_text()
        port = re.findall(r"url=http://127.0.0.1:(\d+)", log.read_text())[0]
        probe = [
            word.replace("/opt/", f"{tmp_path}/opt/").replace(":8080/", f":{port}/")
            for word in final.exec_form("HEALTHCHECK")
        ]
        assert subprocess.run(probe, check=False, timeout=30, env={"PYTHONDONTWRITEBYTECODE": "1"}).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert subprocess.run(probe, check=False, timeout=30, capture_output=True).returncode != 0
    finally:
        process.kill()
        process.wait()
    after = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}
    assert after == before


def test_the_spark_image_starts_the_jobs() -> None:
    """Its entry point, with the Python that has the same packages."""
    (stage,) = (stage for stage in dockerfile.read(FILES["spark"])[-1:])
    program, *rest = stage.exec_form("ENTRYPOINT")
    assert program == "/opt/ingestor/bin/python"
    if find_spec("spark_jobs.__main__") is None:
        pytest.skip("the Spark jobs have no command line yet")
    done = subprocess.run(
        [sys.executable, *rest, *stage.exec_form("CMD")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "compact" in done.stdout
