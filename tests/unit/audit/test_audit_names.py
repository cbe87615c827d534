"""How an audit reads the names of txns: as the ingestor writes them, by a reading of its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.audit import Names
from ingestor.ledger import DEFAULT_TEMPLATE, KDI_TEMPLATE, AppIds
from ingestor.records import TopicPartition

TEMPLATES = (DEFAULT_TEMPLATE, KDI_TEMPLATE, "{topic}:{partition}@{app_id}", "v1.{app_id}|{partition}")
APP_IDS = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1, max_size=12)
TOPICS = st.from_regex(re.compile(r"[a-zA-Z0-9._-]{1,12}", re.ASCII), fullmatch=True)
PARTITIONS = st.integers(0, 10_000)


@given(st.sampled_from(TEMPLATES), APP_IDS, TOPICS, PARTITIONS)
def test_the_name_that_the_ingestor_gives_a_partition_is_read_as_that_partition(
    template: str, app_id: str, topic: str, partition: int
) -> None:
    """Whatever is in the names, also what looks like a pattern or a placeholder."""
    tp = TopicPartition(topic, partition)
    written = AppIds(template, app_id, (topic,)).of(tp)
    assert Names(template, app_id, (topic,)).partition(written) == tp


@pytest.mark.parametrize(
    "name",
    ["shop/orders/07", "shop/orders/-1", "shop/orders/", "shop/orders/٣", "shop//0", "Shop/orders/0", "shop/a/b/0"],
)
def test_what_the_ingestor_does_not_write_is_no_name(name: str) -> None:
    """A txn of another spelling is another program's."""
    assert Names(DEFAULT_TEMPLATE, "shop").partition(name) is None


def test_others_are_known_by_the_usual_schemes() -> None:
    """Ours, and kafka-delta-ingest's where the route has one topic."""
    names = Names(DEFAULT_TEMPLATE, "shop", ("orders",))
    txns = {"shop/orders/0": 1, "mall/orders/1": 1, "kdi-2": 1, "spark-checkpoint": 1}
    assert names.partitions(txns) == {TopicPartition("orders", 0): 1}
    assert names.foreign(txns) == {TopicPartition("orders", 1), TopicPartition("orders", 2)}


GUARDS = (
    "ingestor:origin/shop/orders/0/orders/AbC-_9/",
    "ingestor:origin/shop/orders/0/orders//",
    "ingestor:removed/shop/orders/0/",
    "ingestor:adopted/shop%2Forders%2F0/mall%2Forders%2F0/",
    "ingestor:of-tomorrow/0/",
)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("guard", GUARDS)
def test_the_txns_of_guards_are_no_partitions(template: str, guard: str) -> None:
    """They stand among the others, and remember other things."""
    names = Names(template, "shop", ("orders",))
    assert names.partition(guard) is None
    assert names.foreign({guard: 7}) == set()
    names.learn({guard: -1})


def test_the_newest_origin_of_a_name_counts() -> None:
    """An entry may be read before or after the checkpoint that repeats it."""
    names = Names(DEFAULT_TEMPLATE, "shop")
    names.learn({"ingestor:origin/shop/orders/0/orders/ne%2Fw/": 1})
    names.learn({"ingestor:origin/shop/orders/0/orders/old/": 0, "ingestor:origin/mall/orders/0/orders/x/": 5})
    assert dict(names.topic_ids()) == {TopicPartition("orders", 0): "ne/w"}
    assert list(names.misplaced()) == []


def test_a_name_without_a_topic_stands_for_the_topic_that_its_rows_came_from() -> None:
    """So v1's position is not taken for v2's."""
    names = Names(KDI_TEMPLATE, "shop", ("v2",))
    assert names.partition("shop-0") == TopicPartition("v2", 0)
    names.learn({"ingestor:origin/shop-0/v1/id/": 0})
    assert names.partition("shop-0") == TopicPartition("v1", 0)
    assert list(names.misplaced()) == [("shop-0", "v2")]
