"""Requests to Kafka that need no group membership: topics, watermarks, topic ids. None is made per record."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from ingestor.errors import ConfigError, IngestorError, RefusedError, Unavailable
from ingestor.kafka import damage, groups
from ingestor.logs import librdkafka_logger
from ingestor.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from datetime import datetime

_ID_TIMEOUT_SECONDS = 2.0
_ID_PAUSE_SECONDS = 60.0  # after a time-out: some brokers don't know topic ids

_FIRST_ASK_SECONDS = 1.0
_MOMENT = re.compile(r" \(after [^)]*\)")  # removed, so that repetitions of a failure have the same text

_REFUSALS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this user READ and DESCRIBE on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this user READ on the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this user the cluster permission that it lacks",
    KafkaError.SASL_AUTHENTICATION_FAILED: "correct sasl.username and sasl.password",
    KafkaError._AUTHENTICATION: "correct the SASL or TLS settings under kafka",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "set sasl.mechanism to one that the broker offers",
    KafkaError._SSL: "correct the TLS settings under kafka (ssl.ca.location, security.protocol)",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "let all members of the group use the same group.protocol and partition.assignment.strategy"
    ),
    KafkaError.UNSUPPORTED_VERSION: "use a group.protocol that the broker supports",
    KafkaError.INVALID_GROUP_ID: "correct kafka.group.id",
    KafkaError.INVALID_SESSION_TIMEOUT: "choose a session.timeout.ms that the broker allows",
}
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library's gap
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # same
_KIP_848 = "API version not supported: ConsumerGroupHeartbeat"
_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_FENCED = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED)


# Refused and cut-off handshakes share an error code; only the text differs. A cut-off one is retried: brokers that
# stop or start cut off many.
_CUT_OFF = re.compile(r"disconnected|timed out|connection reset|broken pipe|unexpected eof", re.IGNORECASE)


def _passes(error: KafkaError) -> bool:
    in_handshake = error.code() in (KafkaError._SSL, KafkaError._AUTHENTICATION)
    return in_handshake and _CUT_OFF.search(error.str()) is not None


def kafka_failure(error: KafkaError, *, doing: str) -> IngestorError | Unavailable:
    """Classify a Kafka error: permanent (a refusal), or retriable."""
    text = f"{doing}: {error.str()} ({error.name()})"
    of_the_instance = "group.instance.id" in error.str() or "instance ID" in error.str()  # classic, KIP-848
    if error.code() in _FENCED or (error.code() == KafkaError._FATAL and of_the_instance):
        return RefusedError(
            f"{doing}: another process uses the same group.instance.id ({error.name()})",
            hint="give each process its own kafka.group.instance.id",
        )
    if _KIP_848 in error.str():  # by its text: its codes have other meanings too
        return RefusedError(
            f"{doing}: the broker does not know group.protocol: consumer ({error.name()})",
            hint="leave kafka.group.protocol out, or enable the protocol on brokers that have it (4.0 and newer)",
        )
    if error.code() in _REFUSALS and not _passes(error):
        return RefusedError(text, hint=_REFUSALS[error.code()])
    if error.fatal() or error.code() == KafkaError._FATAL:  # in the error callback a fatal error has only this code
        return RefusedError(text, hint="this Kafka client can't continue; start the ingestor again")
    return Unavailable(text)


@contextlib.contextmanager
def asking(doing: str) -> Any:  # noqa: ANN401 - a context manager's type says nothing here
    """Turn Kafka's exceptions into ours."""
    try:
        yield
    except KafkaException as error:
        raise kafka_failure(error.args[0], doing=doing) from error
    except TimeoutError as error:
        msg = f"{doing}: no answer in time"
        raise Unavailable(msg) from error


@dataclass(frozen=True, slots=True)
class Watermarks:
    """A partition's offsets: `low` is the first, `high` the next to be written."""

    low: int
    high: int
    stable: int  # the last stable offset: below `high` while a transaction is open


class Broker:
    """Sends requests to the cluster. Thread-safe, as librdkafka's clients are."""

    def __init__(self, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        wanted = without_consumer_keys(config)
        self._coordinators = groups.Coordinators(wanted)
        self._config = config
        self._servers = config.get("bootstrap.servers", "")
        self._refusal: RefusedError | None = None
        self._heard = ""  # why the last connection failed
        client: dict[str, Any] = {**wanted, "logger": librdkafka_logger(), "error_cb": self._note}
        try:
            self._admin = AdminClient(client)
        except KafkaException as error:
            raise bad_client_config(error) from error
        self._timeout = timeout
        self._ids_again_at = 0.0

    def _note(self, error: KafkaError) -> None:
        failure = kafka_failure(error, doing="reaching Kafka")
        if isinstance(failure, RefusedError):
            self._refusal = failure
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._heard = _MOMENT.sub("", error.str())

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """Turn Kafka's exceptions into ours. A request only times out; its cause comes by the error callback."""
        try:
            with asking(doing):
                yield
        except Unavailable as error:
            self._admin.poll(0)
            refusal, self._refusal = self._refusal, None
            heard = f"; {self._heard}" if self._heard else ""
            cause = error.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() in _UNREACHABLE:
                told = f"{doing}: no broker at {self._servers} can be reached ({cause.args[0].name()})"
            else:
                told = str(error)
            raise refusal or Unavailable(f"{told}{heard}") from cause
        self._admin.poll(0)
        self._refusal, self._heard = None, ""

    def topics(self, *, timeout: float | None = None) -> dict[str, int]:
        """Return every topic that this user may see, and its number of partitions."""
        found = self._list(self._timeout if timeout is None else timeout)
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def _list(self, timeout: float) -> Mapping[str, Any]:
        """Ask with growing time-outs, so that a refusal, noticed after each, is raised early."""
        deadline = time.monotonic() + timeout
        step = _FIRST_ASK_SECONDS
        while True:
            left = deadline - time.monotonic()
            last = step * 2 > left
            try:
                with self._asking("asking Kafka for its topics"):
                    return self._admin.list_topics(timeout=left if last else step).topics
            except Unavailable:
                if last:
                    raise
            step *= 2

    def watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the watermarks of partitions, with one request per broker and kind."""
        low = self._offsets(tps, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        high = self._offsets(tps, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(tps, _LATEST, IsolationLevel.READ_COMMITTED)
        return {tp: Watermarks(low[tp], high[tp], stable[tp]) for tp in tps}

    def offsets_at(self, tps: Collection[TopicPartition], moment: datetime) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after a moment, its stable end if there is none."""
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        found = self._offsets(tps, spec, IsolationLevel.READ_COMMITTED)
        missing = [tp for tp, offset in found.items() if offset < 0]
        return found | self._offsets(missing, _LATEST, IsolationLevel.READ_COMMITTED)

    def _offsets(
        self, tps: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {KafkaTopicPartition(tp.topic, tp.partition): spec for tp in tps}
        if not wanted:
            return {}
        with self._asking("asking Kafka for offsets"):
            futures: dict[KafkaTopicPartition, Future[Any]] = self._admin.list_offsets(
                wanted, isolation_level=isolation, request_timeout=self._timeout
            )
            return {
                TopicPartition(tp.topic, tp.partition): future.result(self._timeout + 1).offset
                for tp, future in futures.items()
            }

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topic ids that the cluster knows; an unknown id means nothing."""
        if not topics or time.monotonic() < self._ids_again_at:
            return {}
        found = {}
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ID_TIMEOUT_SECONDS)
        for topic, future in futures.items():
            try:
                found[topic] = str(future.result(_ID_TIMEOUT_SECONDS + 1).topic_id)
            except (KafkaException, TimeoutError) as error:
                if _is_timeout(error):
                    self._ids_again_at = time.monotonic() + _ID_PAUSE_SECONDS
        return found

    def group(self, group_id: str, *, timeout: float | None = None) -> groups.Group | None:
        """Return a consumer group, None if the cluster can't describe it; does not join it."""
        try:
            return self._coordinators.describe(group_id, self._timeout if timeout is None else timeout)
        except groups.NoAnswer as error:
            doing = f"asking the coordinator of group {group_id} for its members"
            told = [kafka_failure(each, doing=doing) for each in error.errors]
            raise next((one for one in told if isinstance(one, RefusedError)), Unavailable(str(told[0]))) from error

    def forget_group(self, group_id: str) -> None:
        """Delete an empty group, if the cluster allows it."""
        self._coordinators.forget(group_id, self._timeout)

    def end(self) -> None:
        """Cancel a request to a coordinator that may be under way."""
        self._coordinators.end()

    def first_readable(self, tp: TopicPartition, damaged: int, end: int) -> int:
        """Return the first readable offset after a damaged batch, at most `end`."""
        with self._asking("looking behind a damaged batch"):
            return damage.first_readable(self._config, tp, damaged, end)

    def compacted(self, topic: str) -> bool:
        """Return whether the topic is compacted, so that records may vanish in the middle."""
        return "compact" in self.topic_setting(topic, "cleanup.policy")

    def topic_setting(self, topic: str, name: str) -> str:
        """Return a setting of a topic, its own or the broker's default."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with self._asking("asking Kafka for a topic's configuration"):
            found = self._admin.describe_configs([resource], request_timeout=self._timeout)[resource].result(
                self._timeout + 1
            )
        return str(found[name].value)

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication, unless it exists."""
        wanted = NewTopic(topic, partitions, -1, config=dict(settings))
        with self._asking(f"creating topic {topic}"):
            try:
                self._admin.create_topics([wanted], operation_timeout=self._timeout)[topic].result(self._timeout + 1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise


def _is_timeout(error: Exception) -> bool:
    if isinstance(error, TimeoutError):
        return True
    code = error.args[0].code()
    return code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.UNSUPPORTED_VERSION)


def without_consumer_keys(config: Mapping[str, str]) -> dict[str, str]:
    """Return the options without consumer keys, of which librdkafka warns in other clients."""
    return {key: value for key, value in config.items() if not key.startswith(_CONSUMER_ONLY)}


_CONSUMER_ONLY = (
    "group.",
    "session.",
    "heartbeat.",
    "max.poll.",
    "partition.assignment.",
    "enable.auto.",
    "enable.partition.",
    "auto.",
    "isolation.",
    "fetch.",
    "queued.",
    "check.crcs",
    "max.partition.fetch.",
    "consume.",
)


def bad_client_config(error: KafkaException) -> ConfigError:
    """Return the refusal for options that librdkafka refuses."""
    return ConfigError(
        f"kafka: {error.args[0].str()}", hint="correct that key under kafka; see librdkafka's CONFIGURATION.md"
    )
