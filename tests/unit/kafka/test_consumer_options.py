"""What librdkafka is told for a consumer: it takes all of it, whatever `memory` is and whatever the user says."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from ingestor.kafka.options import consumer_options

MIB = 1 << 20


@pytest.mark.parametrize("memory", [32 << 20, 256 << 20, 16 << 30, 1 << 40])
@pytest.mark.parametrize(
    "own",
    [
        {},
        {"receive.message.max.bytes": "1000000"},
        {"message.max.bytes": "40000000"},
        {"fetch.max.bytes": "300000"},
        {"fetch.max.bytes": "300000000"},
    ],
    ids=str,
)
def test_no_memory_is_refused_for_a_key_that_nobody_set(memory: int, own: dict[str, str]) -> None:
    """The client has limits of its own, and compares keys with each other."""
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": "0", **own}
    wanted = consumer_options(config, memory // 8, 1.0)
    Consumer(wanted).close()
    assert own.items() <= wanted.items()


@pytest.mark.parametrize("memory", [32 * MIB, 64 * MIB, 256 * MIB, 16 << 30])
def test_an_answer_that_packs_well_unpacks_to_a_part_of_memory(memory: int) -> None:
    """For librdkafka unpacks all of an answer at once, whatever its queue may hold."""
    wanted = consumer_options({}, memory // 8, 1.0)
    assert 64 * int(wanted["fetch.max.bytes"]) <= max(memory // 8, 4 * MIB)
    assert int(wanted["max.partition.fetch.bytes"]) <= int(wanted["fetch.max.bytes"])
