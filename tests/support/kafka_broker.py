"""The process of one Kafka broker: started, stopped, killed and held still by a test."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support import kafka_jars

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0

JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts in 2 s instead of 4
    "-XX:-UsePerfData",  # would leave a file behind after a kill
)

LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %m (%c{1})%n
logger.config.name = org.apache.kafka.common.config
logger.config.level = warn
logger.broker_config.name = kafka.server.KafkaConfig
logger.broker_config.level = warn
"""

# $0: folder of the broker; the rest: the java command without its main class.
LAUNCH = """\
set -eu
cd "$0"
echo $$ >pid
[ -e data/meta.properties ] ||
    "$@" kafka.tools.StorageTool format --cluster-id "$(cat ../cluster-id)" --config config
exec "$@" kafka.Kafka config
"""


class Broker:
    """One broker's process; its data and ports stay the same over restarts."""

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], jars: Path) -> None:
        self.node_id = node_id
        self._folder = folder
        self._ports = ports
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address without TLS and authentication."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The address of one of the listeners that the cluster was made with."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def running(self) -> bool:
        """Whether the process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it, to start several at once."""
        if self.running:
            return
        java = [kafka_jars.java(), *JVM_OPTIONS, f"-Djava.io.tmpdir={self._folder}"]
        java += ["-Dlog4j2.configurationFile=../log4j2.properties", "-cp", f"{self._jars}/*"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", LAUNCH, str(self._folder), *java],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Return when the broker answers and counts itself among the living."""
        self._wait(self._answers, START_SECONDS_MAX)

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self.launch()
        self.wait_ready()

    def terminate(self) -> None:
        """Ask the process to end in order, without waiting for it, to stop several at once."""
        self.resume()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process in order (SIGTERM): its partitions move, its files are closed."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """End the process as a power cut would (SIGKILL)."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None
        (self._folder / "pid").unlink(missing_ok=True)

    def pause(self) -> None:
        """Hold the process still (SIGSTOP): its sockets stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that the broker logged."""
        text = (self._folder / "log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        # librdkafka would log a line for each refused connection.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._ports["PLAINTEXT"]), timeout=1).close()
            with contextlib.suppress(KafkaException):
                admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
                return self.node_id in admin.list_topics(timeout=2).brokers
        return False

    def _wait(self, condition: Callable[[], bool], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not condition():
            if not self.running or time.monotonic() > deadline:
                state = f"not ready after {seconds_max} s" if self.running else "ended"
                msg = f"broker {self.node_id} {state}; its log ends:\n{self.log_tail()}"
                raise RuntimeError(msg)
            time.sleep(0.05)
