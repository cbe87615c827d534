"""The consumer's options: those that the guarantee needs, then the user's, then better defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The guarantee needs these; `config/options.py` refuses other values.
_OURS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
}
# Better defaults than librdkafka's; the user's values win.
_BETTER = {
    "check.crcs": "true",
    "topic.metadata.refresh.interval.ms": "30000",
    "fetch.error.backoff.ms": "100",
    "client.id": "ingestor",
    "socket.keepalive.enable": "true",
}
_MESSAGE_OVERHEAD_BYTES = 512
# librdkafka decompresses a whole fetch response at once, whatever the queue's limit. So a response is limited such that
# one compressed 64 times fills the queue once more.
_PACKED_TIMES = 64
_ANSWER_BYTES_MIN = 64 << 10
_ANSWER_BYTES_MAX = 50 << 20  # librdkafka's own default
_GATHERED_BYTES = 128 << 10
# librdkafka's upper limits of these keys.
_QUEUE_KBYTES_MAX = 2_097_151
_QUEUE_MESSAGES_MAX = 10_000_000
_REQUEST_BYTES = 1_000_000  # librdkafka's default of message.max.bytes, which must not exceed fetch.max.bytes
_WAIT_SECONDS_MAX = 0.5  # librdkafka's default
_LIMITS = frozenset(("fetch.max.bytes", "max.partition.fetch.bytes", "fetch.message.max.bytes"))


def consumer_options(config: Mapping[str, str], queue_bytes: int, flush_seconds: float) -> dict[str, str]:
    """Return all options of a consumer that prefetches about `queue_bytes`, for drafts open for `flush_seconds`."""
    ahead = _reading_ahead(queue_bytes, config)
    return {**_BETTER, **ahead, **_gathering(config, ahead, flush_seconds), **config, **_OURS}


def _reading_ahead(queue_bytes: int, config: Mapping[str, str]) -> dict[str, str]:
    """Return options that keep librdkafka's prefetch near `queue_bytes`.

    One decompressed response per broker may exceed the queue's limit, and each message costs half a KiB beside its
    payload. A broker sends at least one batch, however large; only its producer bounds that. The short
    `fetch.queue.backoff.ms` makes librdkafka fetch again soon after a full queue; its default is a second.
    """
    answer = min(max(_ANSWER_BYTES_MIN, queue_bytes // _PACKED_TIMES), _ANSWER_BYTES_MAX)
    request = _number(config, "message.max.bytes")
    if request is not None:  # librdkafka requires fetch.max.bytes to be at least this
        answer = max(answer, request)
    room = _number(config, "receive.message.max.bytes")
    if room is not None:  # and at most this less 512
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
    """Return the user's number for a key, None if there is none; librdkafka refuses text."""
    text = config.get(key, "")
    return int(text) if text.isdecimal() else None


def _gathering(config: Mapping[str, str], ahead: Mapping[str, str], flush_seconds: float) -> dict[str, str]:
    """Return options that let the broker collect records before it responds, for at most a tenth of `flush_seconds`.

    By default each producer batch is one response: hundreds per second, which cost more than the records. The maximum
    size of a response must exceed the minimum that the broker waits for, otherwise it always waits.
    """
    if config.keys() & _LIMITS:
        return {}
    wait_seconds = min(_WAIT_SECONDS_MAX, flush_seconds / 10)
    least = min(_GATHERED_BYTES, int(ahead["fetch.max.bytes"]) // 2)
    return {"fetch.min.bytes": str(least), "fetch.wait.max.ms": str(max(1, int(wait_seconds * 1000)))}


def subscription(config: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Return the topics to subscribe to.

    Under KIP-848 the broker matches regexes against whole names; librdkafka matches their beginning.
    """
    if config.get("group.protocol") != "consumer":
        return list(topics)
    return [f"^({topic[1:]}).*" if topic.startswith("^") else topic for topic in topics]
