"""What librdkafka is told for our consumer: what the guarantee needs, what the user says, what is better otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What the guarantee needs of librdkafka; settings refuses other values of these keys.
_OURS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
}
# What is better here than librdkafka's defaults, unless the user says otherwise.
_BETTER = {
    "check.crcs": "true",
    "topic.metadata.refresh.interval.ms": "30000",
    "fetch.error.backoff.ms": "100",
    "client.id": "ingestor",
    "socket.keepalive.enable": "true",
}
_MESSAGE_OVERHEAD_BYTES = 512
_PARTITION_BYTES_MIN = 256 << 10
_ANSWER_BYTES = 128 << 10
_WAIT_SECONDS_MAX = 0.5  # librdkafka's own
_LIMITS = frozenset(("fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes"))


def consumer_options(config: Mapping[str, str], queue_bytes: int, flush_seconds: float) -> dict[str, str]:
    """Return all options of a consumer that reads ahead about so many bytes, for files that are so long open."""
    return {**_BETTER, **_reading_ahead(queue_bytes), **_gathering(config, flush_seconds), **config, **_OURS}


def _reading_ahead(queue_bytes: int) -> dict[str, str]:
    """Return what keeps what librdkafka reads ahead near a number of bytes.

    Its queue may be overfilled by one answer, which comes compressed, and each message costs half a KiB beside its
    payload. A queue that was full is looked at again soon: by default only after a second, in which we would wait.
    For each answer broker and client go through all partitions: of many it may be large, of few their own limit counts.
    """
    return {
        "queued.max.messages.kbytes": str(max(1 << 10, queue_bytes >> 10)),
        "queued.min.messages": str(max(10_000, queue_bytes // _MESSAGE_OVERHEAD_BYTES)),
        "fetch.max.bytes": str(max(1 << 20, queue_bytes // 4)),
        "max.partition.fetch.bytes": str(max(_PARTITION_BYTES_MIN, queue_bytes // 128)),
        "fetch.queue.backoff.ms": "10",
    }


def _gathering(config: Mapping[str, str], flush_seconds: float) -> dict[str, str]:
    """Return what lets the broker gather records before it answers, for at most a tenth of the time till the flush.

    By default each batch of a producer is an answer of its own: hundreds per second, which cost broker and us more than
    the records do. What a broker may put into an answer has to be more than what it waits for, else it always waits.
    """
    if config.keys() & _LIMITS:
        return {}
    wait_seconds = min(_WAIT_SECONDS_MAX, flush_seconds / 10)
    return {"fetch.min.bytes": str(_ANSWER_BYTES), "fetch.wait.max.ms": str(max(1, int(wait_seconds * 1000)))}


def subscription(config: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Return what to subscribe to.

    A broker (KIP-848) matches regexes against whole names, where librdkafka matches their beginning.
    """
    if config.get("group.protocol") != "consumer":
        return list(topics)
    return [f"^({topic[1:]}).*" if topic.startswith("^") else topic for topic in topics]
