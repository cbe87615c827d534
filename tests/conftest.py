"""Fixtures that several kinds of tests share."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from ingestor.kafka.native import library
from tests.support.kafka import jars as kafka_jars
from tests.support.kafka.cluster import Cluster
from tests.support.process.ingestors import Deploy
from tests.support.tools import ivy

# Deadlines per example would measure the machine, not the code.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=20)
settings.register_profile(
    "soak",
    parent=settings.get_profile("default"),
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow],
)
# Enough to fail, without looking for the smallest way to: a broken copy only has to be noticed.
settings.register_profile(
    "mutants",
    parent=settings.get_profile("default"),
    max_examples=200,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Those of tests/spark that start every Spark by themselves, and so need not wait for the others' session.
_NO_SESSION = ("test_every.py", "test_refused.py", "test_s3.py", "test_submitted.py")
_LONG_FIRST = ("spark", "tests/faults/", "tests/spark/", "tests/integration/", "tests/operation/", "tests/machine/")


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist's own base has no types
    """Keeps in one process what shares a fixture that is slow to make: a file's tests, and all on one Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.startswith("tests/spark/") and not file.endswith(_NO_SESSION) else file

    def _assign_work_unit(self, node: object) -> None:
        """Begin with what takes long, lest one process works on it alone in the end."""
        longest = min(self.workqueue, key=lambda scope: [not scope.startswith(begin) for begin in _LONG_FIRST])
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Together:
    """Let the processes of `make test` share the tests out so."""
    return _Together(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka before the first test: it takes longer than a test may, and people see it."""
    wanted = any(
        "kafka" in getattr(item, "fixturenames", ()) or item.get_closest_marker("integration") for item in session.items
    )
    if not wanted or session.config.option.collectonly:
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    announce = terminal.write_line if terminal else print
    try:
        kafka_jars.kafka(announce)
    except ivy.JarsUnavailableError as error:
        announce(f"tests with a real broker will fail: {error}")


_SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def summary(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Take a line for the end of the whole run, where people see it whatever process ran the test."""
    return request.config.stash.setdefault(_SUMMARY, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the lines of a process of xdist's over to the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["summary"] = session.config.stash.get(_SUMMARY, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # of xdist's, which has no types
    """Take them over."""
    node.config.stash.setdefault(_SUMMARY, []).extend(getattr(node, "workeroutput", {}).get("summary", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print them."""
    lines: list[str] = config.stash.get(_SUMMARY, [])
    for line in sorted(lines):
        terminalreporter.write_line(line)


@pytest.fixture(params=["native", "messages"])
def either_intake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a test with each of the ways in which records come in, in this process and in those that it starts."""
    monkeypatch.setenv(library.SWITCH, "on" if request.param == "native" else "off")
    library.load.cache_clear()
    native, why_not = library.load()
    if request.param == "native" and native is None:
        pytest.skip(f"no native intake: {why_not}")
    yield
    monkeypatch.undo()
    library.load.cache_clear()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """One real broker for all tests; who kills or pauses it leaves it running again."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def deploy(kafka: Cluster, tmp_path: Path) -> Iterator[Deploy]:
    """Ingestors on that broker, whose processes end with the test."""
    with Deploy(tmp_path, kafka.bootstrap) as deploying:
        yield deploying
