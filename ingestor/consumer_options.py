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


def consumer_options(config: Mapping[str, str], queue_bytes: int) -> dict[str, str]:
    """Return all options of a consumer that reads ahead about so many bytes."""
    return {**_BETTER, **_fetching(queue_bytes), **config, **_OURS}


def _fetching(queue_bytes: int) -> dict[str, str]:
    """Return what keeps what librdkafka reads ahead near a number of bytes.

    Its queue may be overfilled by one answer, which comes compressed, and each message costs half a KiB beside its
    payload. A queue that was full is looked at again soon: by default only after a second, in which we would wait.
    """
    return {
        "queued.max.messages.kbytes": str(max(1 << 10, queue_bytes >> 10)),
        "queued.min.messages": str(max(10_000, queue_bytes // _MESSAGE_OVERHEAD_BYTES)),
        "fetch.max.bytes": str(max(1 << 20, queue_bytes // 8)),
        "max.partition.fetch.bytes": str(max(256 << 10, queue_bytes // 128)),
        "fetch.queue.backoff.ms": "10",
    }


def subscription(config: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Return what to subscribe to.

    A broker (KIP-848) matches regexes against whole names, where librdkafka matches their beginning.
    """
    if config.get("group.protocol") != "consumer":
        return list(topics)
    return [f"^({topic[1:]}).*" if topic.startswith("^") else topic for topic in topics]
