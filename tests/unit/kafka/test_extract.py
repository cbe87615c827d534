"""From librdkafka's messages to columns: whatever is mixed in one poll."""

from __future__ import annotations

import numpy as np
from confluent_kafka import Message

from ingestor.kafka.extract import Stamps, extract, extract_stamps, extract_topics


def messages(*topics: str) -> list[Message]:
    return [
        Message(topic=topic, partition=at % 3, offset=10 * at, value=b"%d" % at, key=b"k", timestamp=(1 + at % 2, at))
        for at, topic in enumerate(topics)
    ]


def test_records_of_one_topic_share_its_name() -> None:
    topics, codes = extract_topics(messages("b", "b", "b"))
    assert topics == ("b",)
    assert codes.tolist() == [0, 0, 0]


def test_each_record_of_several_topics_points_to_its_own() -> None:
    """Wherever the other one comes: first, last, in between."""
    for names in (["b", "b", "a"], ["a", "b", "b"], ["b", "a", "b"], ["c", "a", "b", "a"]):
        topics, codes = extract_topics(messages(*names))
        assert [topics[code] for code in codes.tolist()] == names
        assert len(topics) == len(set(names))


def test_columns_hold_what_the_records_say() -> None:
    polled = messages("t", "t", "t")
    extras = ("key", "timestamp_type")
    columns = extract(polled, extract_stamps(polled, extras), ("t",), np.zeros(3, np.int32), extras)
    assert columns.partitions.tolist() == [0, 1, 2]
    assert columns.offsets.tolist() == [0, 10, 20]
    assert columns.timestamps_ms.tolist() == [0, 1, 2]
    assert columns.values == [b"0", b"1", b"2"]
    assert columns.keys == [b"k"] * 3
    assert columns.headers is None
    assert columns.timestamp_types is not None
    assert columns.timestamp_types.tolist() == [1, 2, 1]
    bare = extract(polled, extract_stamps(polled, ()), ("t",), np.zeros(3, np.int32), ())
    assert bare.timestamps_ms.tolist() == [0, 1, 2]
    assert (bare.keys, bare.timestamp_types) == (None, None)


def test_where_every_message_has_a_timestamp_none_is_an_event() -> None:
    """Events have -1, which also a record may have: then all have to be looked at."""
    assert Stamps(np.array([0, 5]), None).all_there
    assert Stamps(np.array([], np.int64), None).all_there
    assert not Stamps(np.array([5, -1, 5]), None).all_there
