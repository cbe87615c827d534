"""Real Kafka brokers (KRaft) on free loopback ports, for tests that kill, stop and restart them.

    with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        cluster.brokers[0].kill()

Every broker is controller and broker in one. Its data lives in a temporary folder and on the same
ports until the cluster is closed, whatever happens to the process. Neither the processes nor the
folder outlive the test run, even one that ends by SIGKILL.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient

from tests.support.kafka import jars as kafka_jars
from tests.support.kafka.broker import JVM, LOG4J, QUICK_JVM, Broker
from tests.support.process.server import Home, free_ports

# Fast where Kafka is patient (rebalances, cleaning, expiry), patient where it is fast (retention),
# and open to all that a test may want to send.
DEFAULTS: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.regex.refresh.interval.ms": 10000,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 8 << 20,
    "log.initial.task.delay.ms": 200,
    "log.message.timestamp.after.max.ms": 2**63 - 1,
    "log.retention.check.interval.ms": 500,
    "log.retention.ms": -1,
    "log.segment.delete.delay.ms": 100,
    "message.max.bytes": 64 << 20,
    "offsets.topic.num.partitions": 4,
    "replica.fetch.max.bytes": 64 << 20,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "transaction.state.log.num.partitions": 4,
}


class Cluster:
    """Brokers that share a quorum. Verbs act on all of them; `brokers` gives each one.

    `config` overrides any broker setting. `listeners` adds listeners beside the plain one, by
    name and protocol (`{"TLS": "SSL"}`); their settings go into `config`
    (`listener.name.tls.ssl.keystore.location`), their address comes from `address("TLS")`. `advertised` names the
    address under which clients are told to reach a listener, as of a proxy; for one broker. `measured` brokers start
    slowly and then work as fast as anybody's.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, str] | None = None,
        measured: bool = False,
    ) -> None:
        self._measured = measured
        self._count = brokers
        self._config = dict(config or {})
        self._protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(listeners or {})}
        self._advertised = dict(advertised or {})
        self._home: Home | None = None
        self.brokers: tuple[Broker, ...] = ()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses without TLS and authentication."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The brokers' addresses on one listener."""
        return ",".join(broker.address(listener) for broker in self.brokers)

    def start(self) -> None:
        """Start all brokers that don't run, and wait until they serve."""
        if self._home is None:
            self._create()
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def stop(self) -> None:
        """End all brokers in order; they keep their data."""
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        """End all brokers as a power cut would; they keep their data."""
        for broker in self.brokers:
            broker.kill()

    def pause(self) -> None:
        """Hold all brokers still."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """Let all paused brokers go on."""
        for broker in self.brokers:
            broker.resume()

    def restart(self) -> None:
        """Stop all brokers in order and start them again."""
        self.stop()
        self.start()

    def leader(self, topic: str, partition: int) -> Broker:
        """The broker that leads a partition now."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
        return next(broker for broker in self.brokers if broker.node_id == leader)

    def close(self) -> None:
        """Kill all brokers and remove their data."""
        self.kill()
        if self._home is not None:
            self._home.remove()
            self._home = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        jars = kafka_jars.kafka()
        self._home = Home("kafka")
        home = self._home.path
        # Ids that start with "-" would be taken for an option.
        cluster_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")
        (home / "cluster-id").write_text(cluster_id)
        (home / "log4j2.properties").write_text(LOG4J)
        ports = free_ports(self._count * len(self._protocols))
        nodes = {node_id: {name: ports.pop() for name in self._protocols} for node_id in range(1, self._count + 1)}
        for node_id in nodes:
            folder = home / str(node_id)
            folder.mkdir()
            settings = {**DEFAULTS, **self._settings(node_id, nodes, folder), **self._config}
            lines = (f"{key}={value}\n" for key, value in settings.items())
            (folder / "config").write_text("".join(lines))
        self.brokers = tuple(
            Broker(node_id, home / str(node_id), ports, jars, JVM if self._measured else QUICK_JVM)
            for node_id, ports in nodes.items()
        )

    def _settings(self, node_id: int, nodes: Mapping[int, Mapping[str, int]], folder: Path) -> dict[str, object]:
        ports = nodes[node_id]
        replicas = min(3, self._count)
        listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
        told = {name: f"{name}://{self._advertised[name]}" for name in self._advertised}
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(
                f"{voter}@127.0.0.1:{ports['CONTROLLER']}" for voter, ports in nodes.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(
                address for name, address in (listeners | told).items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in self._protocols.items()
            ),
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": 1,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": 1,
        }
