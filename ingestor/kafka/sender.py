"""Sends records to Kafka, each portion in one Kafka transaction: readers see all of it or nothing.

An idempotent producer alone is not enough: it prevents duplicates of its own retries, but not those of two processes. A
publisher that was stopped and continues minutes later would send what another has sent meanwhile. `start` prevents
that: the broker ends any open transaction of the transactional id, and refuses everything that an older holder of the
id still sends. After it, the content of the topic is settled, so reading the topic (`scan`) shows what is left to send.

Readers of dead letters should read committed records only (`isolation.level=read_committed`).
"""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from ingestor import logs
from ingestor.errors import Fenced, IngestorError, RefusedError, Unavailable
from ingestor.kafka.broker import bad_client_config, kafka_failure, without_consumer_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Message

    from ingestor.records import Coordinate

_TRANSACTION_SECONDS = 60
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.1
_REASON_SECONDS_MAX = 5.0
_ABORTING = "aborting in Kafka"
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_FOLLOWING = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE)  # follow from another failure
_OURS = {
    "enable.idempotence": "true",
    "transaction.timeout.ms": str(_TRANSACTION_SECONDS * 1000),
}
# With several requests under way, librdkafka never gets answers for those behind a refused one.
_ONE_BY_ONE = {"batch.num.messages": "1", "max.in.flight.requests.per.connection": "1"}
_BETTER = {
    "linger.ms": "5",
    "compression.type": "zstd",
    "client.id": "ingestor-dlq",
    "message.max.bytes": "1000000000",  # the topic's limit decides, not librdkafka's
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send, and the coordinate of its original."""

    origin: Coordinate
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Sender:
    """A producer with a transactional id. Raises Fenced once another process has taken over the id."""

    def __init__(self, config: Mapping[str, str], transactional_id: str) -> None:
        self._config: dict[str, Any] = {**_BETTER, **without_consumer_keys(config), **_OURS}
        self._config["transactional.id"] = transactional_id
        self._one_by_one = False
        self._producer = self._make()

    def _make(self) -> Producer:
        one_by_one = _ONE_BY_ONE if self._one_by_one else {}
        try:
            return Producer({**self._config, **one_by_one, "logger": logs.librdkafka_logger()})
        except KafkaException as error:
            raise bad_client_config(error) from error

    def start(self) -> None:
        """Take over the id; afterwards its last holder's records are settled, and it can send no more."""
        self._until_done(self._producer.init_transactions, doing="taking over the transactional id")

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send all records, in order within a partition, and wait until they are committed.

        After an error it is unknown what was sent; `start` settles it.
        """
        if not messages:
            return
        try:
            self._send(messages)
        except TooLargeError:
            if self._one_by_one:
                raise
            # A broker refuses whole batches: one may be too large although each of its records is not.
            self._one_by_one = True
            self._producer = self._make()
            self.start()
            self._send(messages)

    def _send(self, messages: Sequence[Outgoing]) -> None:
        failed: list[tuple[Outgoing, KafkaError]] = []
        with _understood("beginning a Kafka transaction"):
            self._producer.begin_transaction()
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        for message in messages:
            self._produce(message, failed, deadline)
        while not failed and len(self._producer) and time.monotonic() < deadline:
            self._poll(_POLL_SECONDS)  # not `flush`, which waits for records that a failed transaction never sends
        if failed:
            self._await_reason(failed)
        left = len(self._producer)
        if failed or left:
            failure = _failure(failed, left)
            if self._one_by_one or not isinstance(failure, TooLargeError):
                self._abort()  # otherwise the new producer's start does it
            raise failure
        self._until_done(self._producer.commit_transaction, doing="committing to Kafka")

    def _produce(self, message: Outgoing, failed: list[tuple[Outgoing, KafkaError]], deadline: float) -> None:
        report = functools.partial(_note, failed, message)
        while not failed and time.monotonic() < deadline:
            try:
                self._producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    partition=message.origin.partition,
                    headers=list(message.headers),
                    on_delivery=report,
                )
            except BufferError:
                self._poll(_POLL_SECONDS)
                continue
            except KafkaException as error:
                failed.append((message, error.args[0]))
            else:
                self._poll(0)
            return
        if not failed:
            failed.append((message, KafkaError(KafkaError._TIMED_OUT)))

    def _await_reason(self, failed: Sequence[tuple[Outgoing, KafkaError]]) -> None:
        """Wait for the delivery report of the record that failed the transaction: only it has the cause."""
        deadline = time.monotonic() + _REASON_SECONDS_MAX
        while not _reasons(failed) and len(self._producer) and time.monotonic() < deadline:
            self._poll(_POLL_SECONDS)

    def _poll(self, seconds: float) -> None:
        """Serve delivery reports; a fatal error is raised here or at the next call."""
        with _understood("sending to Kafka"):
            self._producer.poll(seconds)

    def _abort(self) -> None:
        """Abort the transaction; if that fails too, the next `start` does it."""
        with contextlib.suppress(Unavailable, RefusedError):
            self._until_done(self._producer.abort_transaction, doing=_ABORTING)

    def _until_done(self, call: Callable[[float], None], *, doing: str) -> None:
        """Repeat a call while its error is retriable and time is left."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                call(max(1.0, deadline - time.monotonic()))
            except (KafkaException, SystemError) as error:
                problem = _told(error)
                if problem.retriable() and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                if problem.txn_requires_abort() and doing != _ABORTING:
                    self._abort()
                raise _meaning(problem, doing) from error
            return


def _reasons(failed: Sequence[tuple[Outgoing, KafkaError]]) -> list[tuple[Outgoing, KafkaError]]:
    """Return the failures that are causes; records that were purged or refused after one of them are left out."""
    return [(sent, error) for sent, error in failed if error.code() not in _FOLLOWING]


def _note(failed: list[tuple[Outgoing, KafkaError]], sent: Outgoing, error: KafkaError | None, _at: Message) -> None:
    if error is not None:
        failed.append((sent, error))


@contextlib.contextmanager
def _understood(doing: str) -> Any:  # noqa: ANN401 - a context manager's type says nothing here
    try:
        yield
    except (KafkaException, SystemError) as error:
        raise _meaning(_told(error), doing) from error


def _told(error: KafkaException | SystemError) -> KafkaError:
    """Return Kafka's error; Python wraps one that is raised during a delivery report in a SystemError."""
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, KafkaException):
        raise error
    problem: KafkaError = cause.args[0]
    return problem


class TooLargeError(RefusedError):
    """A record is larger than its topic allows."""


def _failure(failed: Sequence[tuple[Outgoing, KafkaError]], left: int) -> Exception:
    """Return the failure that caused those of the other records."""
    for sent, error in failed:
        if error.code() in _TOO_LARGE:
            size = len(sent.value or b"") + sum(len(name) + len(value or b"") for name, value in sent.headers)
            msg = f"{sent.origin} is too large for topic {sent.topic} ({size:,} bytes with its headers)"
            return TooLargeError(
                msg,
                hint=f"raise max.message.bytes of topic {sent.topic}, then start again; nothing of its batch was sent",
            )
    for sent, error in _reasons(failed) or failed:
        return _meaning(error, f"sending {sent.origin} to topic {sent.topic}")
    return Unavailable(f"Kafka did not acknowledge {left} records within {_TRANSACTION_SECONDS} s")


def _meaning(error: KafkaError, doing: str) -> Exception:
    if error.code() in _FENCED:
        return Fenced("another process has taken over")
    if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return RefusedError(
            f"{doing}: {error.str()} ({error.name()})",
            hint="grant this user WRITE and DESCRIBE on the transactional ids that begin with ingestor-dlq",
        )
    found: IngestorError | Unavailable = kafka_failure(error, doing=doing)
    return found
