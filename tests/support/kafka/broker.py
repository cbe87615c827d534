"""The process of one Kafka broker: started, stopped, killed and held still by a test."""

import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.process.server import Server
from tests.support.tools import ivy

JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",  # would leave a file behind after a kill
)
QUICK_JVM = (*JVM, "-XX:TieredStopAtLevel=1")  # starts in 2 s instead of 4, but costs twice as much in the long run

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


class Broker(Server):
    """One broker's process; its data and ports stay the same over restarts."""

    script = LAUNCH

    def __init__(self, node_id: int, folder: Path, ports: Mapping[str, int], jars: Path, jvm: Sequence[str]) -> None:
        super().__init__(folder)
        self.node_id = node_id
        self._ports = ports
        self._jars = jars
        self._jvm = jvm

    @property
    def bootstrap(self) -> str:
        """The address without TLS and authentication."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The address of one of the listeners that the cluster was made with."""
        return f"127.0.0.1:{self._ports[listener]}"

    def _command(self) -> Sequence[str | Path]:
        java = [ivy.java(), *self._jvm, f"-Djava.io.tmpdir={self._folder}"]
        return [*java, "-Dlog4j2.configurationFile=../log4j2.properties", "-cp", f"{self._jars}/*"]

    def _answers(self) -> bool:
        """Tell whether the broker answers, and counts itself among the living."""
        # librdkafka would log a line for each refused connection.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._ports["PLAINTEXT"]), timeout=1).close()
            with contextlib.suppress(KafkaException):
                admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
                return self.node_id in admin.list_topics(timeout=2).brokers
        return False
