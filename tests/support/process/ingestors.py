"""Real `ingestor` processes: started, stopped, killed, held still, and judged by what they leave behind.

    deployment = deploy(topic, flush={"seconds": 1})
    ingestor = deployment.start()
    deployment.expect([topic])
    ingestor.stop()

A deployment is one configuration: a folder with its tables, and any number of processes that run it. No process
outlives its test, nor the test run, even one that ends by SIGKILL. Nothing here sleeps and hopes: whoever waits
names a condition and a deadline, and shows the logs when it passes or when a process ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import yaml

from tests.support.judge.history import DEFAULT_TEMPLATE, check_table, read_topics
from tests.support.kafka import topics as kafka_topics
from tests.support.process.child import ENDS_WITH_PARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    Coordinate = tuple[str, int, int]  # topic, partition, offset
    Partition = tuple[str, int]

T = TypeVar("T")

SECONDS_MAX = 40.0
ROUTE = "route"
_TICK_SECONDS = 0.05
_LOG_LINES_SHOWN = 25

_LAUNCH = f"""{ENDS_WITH_PARENT}
os.execv(sys.executable, [sys.executable, "-m", "ingestor", *sys.argv[1:]])
"""
# What only a client's own side of a classic group knows; under `group.protocol: consumer` it is the broker's.
_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")


def eventually(
    condition: Callable[[], T],
    *,
    seconds_max: float = SECONDS_MAX,
    failure: Callable[[], str] = lambda: "it did not come about",
) -> T:
    """Return what the condition returns as soon as that is true."""
    deadline = time.monotonic() + seconds_max
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {failure()}"
        time.sleep(_TICK_SECONDS)
    return result


class Ingestor:
    """One process, which may be started again after it has ended. Start it from the main thread."""

    def __init__(self, arguments: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self._arguments = [*map(str, arguments)]
        self._log = log
        self.environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._may_end = False

    def start(self) -> Self:
        """Start the process; what it says is added to its log."""
        assert not self.running
        self._may_end = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _LAUNCH, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environ},
            )
        return self

    @property
    def running(self) -> bool:
        """Whether the process is there; one that is held still is."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return self._process.pid

    @property
    def fell(self) -> bool:
        """Whether the process ended although nobody wanted it to."""
        return self._process is not None and not self.running and not self._may_end

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if there is still somebody to get it."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Ask the process to end in order (SIGTERM); `wait` for it to do so."""
        self._may_end = True
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        self._may_end = True
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        """Hold the process still (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def wait(self, timeout: float = SECONDS_MAX) -> int:
        """Return the exit code, once there is one."""
        assert self._process is not None
        self._may_end = True
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout:g} s; its log ends:\n{self.log_tail()}") from None

    @property
    def log(self) -> str:
        """All that the process has said."""
        return self._log.read_text() if self._log.exists() else ""

    def log_tail(self, lines: int = _LOG_LINES_SHOWN) -> str:
        """The last lines that the process said."""
        return f"{self._log.name}:\n" + "\n".join(self.log.splitlines()[-lines:])

    @property
    def last_line(self) -> str:
        """The last line: after a failure what happened, and what to do."""
        return (self.log.splitlines() or [""])[-1]

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the log's events of these names, in order."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line["event"] in names]

    def wait_for(self, event: str, *, count: int = 1, seconds_max: float = SECONDS_MAX) -> list[dict[str, Any]]:
        """Return the log's events of one name as soon as there are so many."""

        def there() -> list[dict[str, Any]] | None:
            found = self.events(event)
            assert len(found) >= count or not self.fell, f"it ended by itself; {self.log_tail()}"
            return found if len(found) >= count else None

        found = eventually(there, seconds_max=seconds_max, failure=lambda: f"{event!r}; {self.log_tail()}")
        assert found is not None
        return found


class TableLog:
    """Follows the log of one table: only what it has not read yet is read again."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self.table = table
        self.version = -1
        self.rows = 0  # that were ever added
        self.infos: list[dict[str, Any]] = []  # commitInfo by version
        self.txns: dict[str, int] = {}

    def look(self) -> Self:
        """Take in what has been committed since."""
        while (path := self._next()) is not None:
            version = int(path.stem)
            self.infos += [{}] * (version - self.version - 1)  # what log clean-up removed unseen
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            self.infos.append(next((action["commitInfo"] for action in actions if "commitInfo" in action), {}))
            for action in actions:
                if "txn" in action:
                    self.txns[action["txn"]["appId"]] = action["txn"]["version"]
                if "add" in action:
                    self.rows += json.loads(action["add"]["stats"])["numRecords"]
            self.version = version
        return self

    def _next(self) -> Path | None:
        """Return the entry to read next, past those that log clean-up removed before anybody looked at them."""
        path = self._folder / f"{self.version + 1:020d}.json"
        if path.exists():
            return path
        entries = self._folder.glob(f"{'[0-9]' * 20}.json")
        return min((entry for entry in entries if entry >= path), default=None)

    @property
    def data_files(self) -> set[str]:
        """The data files in the table's folder, whether or not the log knows them."""
        return {str(path.relative_to(self.table)) for path in self.table.rglob("part-*.parquet")}


class Deployment:
    """One configuration: its tables, and the processes that run it."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.folder = folder
        self.document = document
        self.app_id: str = document["app_id"]
        self.bootstrap: str = document["kafka"]["bootstrap.servers"]
        self.processes: list[Ingestor] = []
        self.before_look: Callable[[], None] = lambda: None  # brings tables here that lie elsewhere
        self._configs = 0
        self._logs: dict[str, TableLog] = {}

    def config(self, **kafka: object) -> Path:
        """Write the configuration, with more settings for one process' Kafka client; return its path."""
        merged = {**self.document["kafka"], **{key.replace("_", "."): value for key, value in kafka.items()}}
        if merged.get("group.protocol") == "consumer":
            merged = {key: value for key, value in merged.items() if key not in _CLASSIC_ONLY}
        self._configs += 1
        path = self.folder / f"config-{self._configs}.yaml"
        path.write_text(yaml.safe_dump({**self.document, "kafka": merged}, sort_keys=False))
        return path

    def prepare(self, *flags: str, **kafka: object) -> Ingestor:
        """Return one more process, not yet started."""
        arguments: list[str | Path] = ["run", self.config(**kafka), *flags]
        ingestor = Ingestor(arguments, self.folder / f"ingestor-{len(self.processes) + 1}.log")
        self.processes.append(ingestor)
        return ingestor

    def start(self, **kafka: object) -> Ingestor:
        """Start one more process."""
        return self.prepare(**kafka).start()

    def once(self, *, code: int = 0, seconds_max: float = SECONDS_MAX) -> Ingestor:
        """Let a process drain what is there now, and return it when it has ended with this exit code."""
        ingestor = self.prepare("--once").start()
        found = ingestor.wait(seconds_max)
        assert found == code, f"it exited with {found}, not {code}; {ingestor.log_tail()}"
        return ingestor

    def refused(self, code: int, *words: str, starts: int = 3) -> Ingestor:
        """Start it again and again, as a supervisor does: each time it refuses for the same reason. Return the last."""
        for start in range(1, starts + 1):
            ingestor = self.once(code=code)
            missing = [word for word in words if word not in ingestor.last_line]
            assert not missing, f"start {start} does not name {missing}: {ingestor.last_line}"
        return ingestor

    def command(self, name: str, *arguments: str, code: int = 0) -> str:
        """Run another command on the configuration to its end; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "ingestor", name, str(self.config()), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, f"{name} exited with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def table(self, route: str = ROUTE) -> Path:
        """Return where a route's table lies."""
        return self.folder / str(self.document["routes"][route]["table"])

    def log(self, route: str = ROUTE) -> TableLog:
        """Return a table's log as it is now."""
        if route not in self._logs:
            self._logs[route] = TableLog(self.table(route))
        self.before_look()
        return self._logs[route].look()

    def txns(self, route: str = ROUTE) -> dict[str, int]:
        """Return the txns of a table's partitions as they are now, by app id."""
        return {name: txn for name, txn in self.log(route).txns.items() if not name.startswith("ingestor:")}

    def app_id_of(self, topic: str, partition: int) -> str:
        """Return the app id under which a partition's txn stands in the log."""
        template = str(self.document.get("txn_app_id", DEFAULT_TEMPLATE))
        named = template.replace("{topic}", topic).replace("{partition}", str(partition))
        return named.replace("{app_id}", self.app_id)

    def wait_for(self, condition: Callable[[], T], *, seconds_max: float = SECONDS_MAX) -> T:
        """Return what the condition returns as soon as that is true, while no process ends by itself."""

        def checked() -> T:
            fallen = [ingestor.log_tail() for ingestor in self.processes if ingestor.fell]
            assert not fallen, "\n".join(["ended by itself:", *fallen])
            return condition()

        return eventually(checked, seconds_max=seconds_max, failure=self.state)

    def state(self) -> str:
        """Tell where the tables are, and what the processes have said last."""
        logs = "\n".join(ingestor.log_tail() for ingestor in self.processes)
        return f"tables: { {route: self.txns(route) for route in self.document['routes']} }\n{logs}"

    def wait_for_rows(self, count: int, *, route: str = ROUTE, seconds_max: float = SECONDS_MAX) -> None:
        """Return when so many rows have landed."""
        self.wait_for(lambda: self.log(route).rows >= count, seconds_max=seconds_max)

    def wait_for_commits(self, more: int, *, route: str = ROUTE, seconds_max: float = SECONDS_MAX) -> None:
        """Return when the table has so many more versions than now."""
        goal = self.log(route).version + more
        self.wait_for(lambda: self.log(route).version >= goal, seconds_max=seconds_max)

    def expect(
        self,
        topics: Iterable[str],
        *,
        lost: Collection[Coordinate] = (),
        route: str = ROUTE,
        seconds_max: float = SECONDS_MAX,
    ) -> dict[Coordinate, Any]:
        """Wait until all that the topics hold now has landed, and judge the table; return what they hold."""
        expected = read_topics(self.bootstrap, topics)
        last: dict[str, int] = {}
        for topic, partition, offset in expected.keys() - set(lost):
            name = self.app_id_of(topic, partition)
            last[name] = max(offset, last.get(name, offset))

        def landed() -> bool:
            txns = self.txns(route)
            return all(txns.get(name, -1) >= offset for name, offset in last.items())

        self.wait_for(landed, seconds_max=seconds_max)
        self.judge(expected, lost=lost, route=route)
        return expected

    def judge_committed(
        self, topics: Iterable[str], *, route: str = ROUTE, complete: bool = True
    ) -> dict[Coordinate, Any]:
        """Judge a table as it is now against all that the topics hold; return what they hold."""
        expected = read_topics(self.bootstrap, topics)
        self.judge(expected, route=route, complete=complete)
        return expected

    def judge(
        self,
        expected: Mapping[Coordinate, Any],
        *,
        lost: Collection[Coordinate] = (),
        route: str = ROUTE,
        complete: bool = True,
    ) -> None:
        """Judge a table as it is now, against records that were read from Kafka."""
        template = str(self.document.get("txn_app_id", DEFAULT_TEMPLATE))
        check_table(expected, self.table(route), self.app_id, template=template, lost=lost, complete=complete)

    def close(self) -> None:
        """Kill every process that is left."""
        for ingestor in self.processes:
            ingestor.kill()


class Deploy:
    """Makes deployments in a test's folder, and ends their processes with the test."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._deployments: list[Deployment] = []

    def __call__(self, *topics: str, **settings: Any) -> Deployment:
        """Return a deployment with one route; settings that are none of the whole configuration are the route's."""
        whole = {key: settings.pop(key) for key in ("kafka", "bootstrap", *_WHOLE) if key in settings}
        return self.routes({ROUTE: {"topics": list(topics), **settings}}, **whole)

    def routes(
        self,
        routes: Mapping[str, Mapping[str, Any]],
        *,
        kafka: Mapping[str, object] | None = None,
        bootstrap: str | None = None,
        folder: Path | None = None,
        **whole: Any,
    ) -> Deployment:
        """Return a deployment with these routes; each has its own table unless it says otherwise."""
        app_id = kafka_topics.unique("app")
        if folder is None:
            folder = self._folder / f"deployment-{len(self._deployments) + 1}"
            folder.mkdir()
        document = {
            "app_id": app_id,
            "kafka": {
                "bootstrap.servers": bootstrap or self._bootstrap,
                "group.id": app_id,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                **(kafka or {}),
            },
            "routes": {
                name: {"table": name, **route, "flush": {"seconds": 0.5, **route.get("flush", {})}}
                for name, route in routes.items()
            },
            "http": None,
            "log": {"format": "json", "level": "INFO"},
            **whole,
        }
        deployment = Deployment(folder, document)
        self._deployments.append(deployment)
        return deployment

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for deployment in self._deployments:
            deployment.close()


_WHOLE = ("app_id", "txn_app_id", "storage_options", "memory", "breaker", "http", "log", "folder")
