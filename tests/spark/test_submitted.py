"""The same file under spark-submit: a standalone master, two workers, jars that resolve by themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import spark_jobs
from tests.support.process.quick_java import quick_java
from tests.support.process.server import free_ports
from tests.support.silver import balance, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.silver import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
HOME = Path(pyspark.__file__).parent
WORKERS = 2
SECONDS_MAX = 120.0


class Standalone:
    """A master and its workers, each a process of its own that ends with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port, self._web = free_ports(2)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._launch("master.Master", "--port", self.port, "--webui-port", self._web)
        self._wait_for(lambda state: state.get("status") == "ALIVE")
        for number in range(WORKERS):
            work = str(self._folder / f"work-{number}")
            self._launch("worker.Worker", "--webui-port", 0, "-c", 1, "-m", "1g", "-d", work, self.url)
        self._wait_for(lambda state: state.get("aliveworkers") == WORKERS)

    def state(self) -> dict[str, Any]:
        """What the master says of itself; nothing before it answers."""
        url = f"http://127.0.0.1:{self._web}/json/"
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as page:
            found: dict[str, Any] = json.load(page)
            return found
        return {}

    def _launch(self, name: str, *arguments: object) -> None:
        command = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(each) for each in command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environ(),
                    start_new_session=True,
                )
            )

    def _wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition(self.state()):
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-3000:]
            time.sleep(0.2)

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def environ() -> dict[str, str]:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**quick_java(), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", **python}


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "spark"
    folder.mkdir()
    cluster = Standalone(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_the_job_runs_unchanged_on_a_standalone_cluster(standalone: Standalone, lake: Lake, tmp_path: Path) -> None:
    """Two executors take part, the balance comes as the last line, and a failure keeps its exit code."""
    for number in range(4):
        lake.land(event(f"u{number}"), b"nope")
    submit = [str(HOME / "bin" / "spark-submit"), "--master", standalone.url]
    for setting in ("spark.executor.memory=600m", "spark.ui.enabled=false", f"spark.local.dir={tmp_path}/local"):
        submit += ["--conf", setting]
    submit += [str(Path(spark_jobs.__file__).parent / "__main__.py"), "parse"]
    config = lake.config()
    ended = subprocess.run(
        [*submit, str(config)], capture_output=True, text=True, check=False, timeout=400, env=environ(), cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert balance(ended.stdout.splitlines()[-1]) == (8, 4, 4, 0, 0)
    assert lake.silver("user_id") == ["u0", "u1", "u2", "u3"]
    executors = {path.parent.parent.name for path in (tmp_path / "spark").glob("work-*/app-*/*")}
    assert executors == {"work-0", "work-1"}
    refused = subprocess.run(
        [*submit, str(tmp_path / "nowhere.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environ(),
        cwd=tmp_path,
    )
    assert refused.returncode == 2, refused.stderr[-2000:]
    said = (refused.stdout + refused.stderr).splitlines()  # spark-submit gives all that its Python says to stdout
    assert any(line.startswith("spark_jobs: ") and "can't be read" in line for line in said), said[-5:]
