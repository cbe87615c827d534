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
# An answer of the broker comes packed, and librdkafka unpacks all of it at once, whatever its queue may hold. So it is
# so small that one which packs 64 times unpacks to as much as the queue may hold: the queue, once more.
_PACKED_TIMES = 64
_ANSWER_BYTES_MIN = 64 << 10
_ANSWER_BYTES_MAX = 50 << 20  # librdkafka's own default
_GATHERED_BYTES = 128 << 10
# librdkafka refuses more of its own keys, and our user has set none of them.
_QUEUE_KBYTES_MAX = 2_097_151
_QUEUE_MESSAGES_MAX = 10_000_000
_REQUEST_BYTES = 1_000_000  # its default of message.max.bytes, which must not exceed an answer; a consumer sends less
_WAIT_SECONDS_MAX = 0.5  # librdkafka's own
_LIMITS = frozenset(("fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes"))


def consumer_options(config: Mapping[str, str], queue_bytes: int, flush_seconds: float) -> dict[str, str]:
    """Return all options of a consumer that reads ahead about so many bytes, for files that are so long open."""
    ahead = _reading_ahead(queue_bytes, config)
    return {**_BETTER, **ahead, **_gathering(config, ahead, flush_seconds), **config, **_OURS}


def _reading_ahead(queue_bytes: int, config: Mapping[str, str]) -> dict[str, str]:
    """Return what keeps what librdkafka reads ahead near a number of bytes.

    Its queue may be overfilled by one answer of each broker, unpacked, and each message costs half a KiB beside its
    payload. A broker sends one batch at the least, however large: that one is bounded by whoever has sent it. A queue
    that was full is looked at again soon: by default only after a second, in which we would wait.
    """
    answer = min(max(_ANSWER_BYTES_MIN, queue_bytes // _PACKED_TIMES), _ANSWER_BYTES_MAX)
    request = _number(config, "message.max.bytes")
    if request is not None:  # librdkafka wants answers to be no smaller
        answer = max(answer, request)
    room = _number(config, "receive.message.max.bytes")
    if room is not None:  # and to fit in here
        answer = min(answer, max(1, room - 512))
    return {
        "queued.max.messages.kbytes": str(min(max(1 << 10, queue_bytes >> 10), _QUEUE_KBYTES_MAX)),
        "queued.min.messages": str(min(max(10_000, queue_bytes // _MESSAGE_OVERHEAD_BYTES), _QUEUE_MESSAGES_MAX)),
        "fetch.max.bytes": str(answer),
        "max.partition.fetch.bytes": str(answer),
        "message.max.bytes": str(min(_REQUEST_BYTES, _number(config, "fetch.max.bytes") or answer)),
        "fetch.queue.backoff.ms": "10",
    }


def _number(config: Mapping[str, str], key: str) -> int | None:
    """Return what the user says of a key, None if nothing that is a number: librdkafka then says why not."""
    text = config.get(key, "")
    return int(text) if text.isdecimal() else None


def _gathering(config: Mapping[str, str], ahead: Mapping[str, str], flush_seconds: float) -> dict[str, str]:
    """Return what lets the broker gather records before it answers, for at most a tenth of the time till the flush.

    By default each batch of a producer is an answer of its own: hundreds per second, which cost broker and us more than
    the records do. What a broker may put into an answer has to be more than what it waits for, else it always waits.
    """
    if config.keys() & _LIMITS:
        return {}
    wait_seconds = min(_WAIT_SECONDS_MAX, flush_seconds / 10)
    least = min(_GATHERED_BYTES, int(ahead["fetch.max.bytes"]) // 2)
    return {"fetch.min.bytes": str(least), "fetch.wait.max.ms": str(max(1, int(wait_seconds * 1000)))}


def subscription(config: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Return what to subscribe to.

    A broker (KIP-848) matches regexes against whole names, where librdkafka matches their beginning.
    """
    if config.get("group.protocol") != "consumer":
        return list(topics)
    return [f"^({topic[1:]}).*" if topic.startswith("^") else topic for topic in topics]
