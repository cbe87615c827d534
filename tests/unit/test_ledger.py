"""The ledger: app ids name partitions, and a txn tells where to go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.errors import ConfigError
from ingestor.ledger import (
    DEFAULT_TEMPLATE,
    KDI_TEMPLATE,
    AppIds,
    Gap,
    Placement,
    check_template,
    moved,
    place,
    position_after,
    txn_before,
)
from ingestor.records import TopicPartition

TP = TopicPartition("orders", 3)
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
APP_IDS = st.text("abc019._-/+ {}()é", min_size=1, max_size=20)
PARTITIONS = st.integers(0, 9_999_999)
TEMPLATES = (DEFAULT_TEMPLATE, "{partition}@{topic} of {app_id}", "[{topic}].{partition}.{app_id}")


# --- positions ---


@pytest.mark.parametrize(("txn", "position"), [(None, None), (-1, 0), (0, 1), (41, 42)])
def test_the_position_follows_the_txn(txn: int | None, position: int | None) -> None:
    """Zero and minus one are real txns; None means that nothing was ever committed."""
    assert position_after(txn) == position


@given(st.integers(0, 2**62))
def test_a_position_makes_the_txn_that_makes_the_position(position: int) -> None:
    """Setting a position and reading it back gives the same position, 0 included."""
    assert position_after(txn_before(position)) == position


# --- app ids ---


@given(template=st.sampled_from(TEMPLATES), app_id=APP_IDS, topic=TOPICS, partition=PARTITIONS)
def test_an_app_id_names_the_partition_that_it_was_made_of(
    template: str, app_id: str, topic: str, partition: int
) -> None:
    """Whatever stands in the names: braces, regex signs, digits, separators of the template."""
    ids = AppIds(template, app_id)
    tp = TopicPartition(topic, partition)
    assert ids.parse(ids.of(tp)) == tp


@given(app_id=APP_IDS, one=st.tuples(TOPICS, PARTITIONS), two=st.tuples(TOPICS, PARTITIONS))
def test_two_partitions_never_share_an_app_id(app_id: str, one: tuple[str, int], two: tuple[str, int]) -> None:
    """Otherwise the txn of one would skip rows of the other."""
    ids = AppIds(DEFAULT_TEMPLATE, app_id)
    assert (ids.of(TopicPartition(*one)) == ids.of(TopicPartition(*two))) == (one == two)


@pytest.mark.parametrize(
    "text",
    [
        "shop/orders/",
        "shop/orders/x",
        "shop/orders/-1",
        "shop/orders/12345678",
        "shop/or ders/1",
        "shop/orders/1 ",
        "shop/orders/1\n",
        "other/orders/1",
        "shopx/orders/1",
        "",
    ],
)
def test_a_text_of_another_form_names_no_partition(text: str) -> None:
    """Other programs keep their own txns in the same log."""
    assert AppIds(DEFAULT_TEMPLATE, "shop").parse(text) is None


def test_an_app_id_without_topic_stands_for_the_only_topic() -> None:
    """A table of kafka-delta-ingest has one topic, so its app ids need not name it."""
    ids = AppIds(KDI_TEMPLATE, "kdi", ("orders",))
    assert ids.of(TP) == "kdi-3"
    assert ids.parse("kdi-3") == TP
    assert AppIds(KDI_TEMPLATE, "kdi", ("orders", "payments")).parse("kdi-3") is None


@pytest.mark.parametrize(
    ("text", "tp"),
    [
        ("other/orders/3", TP),
        ("other-3", TP),
        ("shop/orders/3", None),
        ("streaming query 7f", None),
    ],
)
def test_an_app_id_of_somebody_else_is_recognised(text: str, tp: TopicPartition | None) -> None:
    """So that a changed app_id is refused, not re-ingested."""
    assert AppIds(DEFAULT_TEMPLATE, "shop", ("orders",)).parse_foreign(text) == tp


def test_the_txns_of_a_log_are_read_by_partition() -> None:
    """Txns of other programs are left out, and zero is a value."""
    ids = AppIds(DEFAULT_TEMPLATE, "shop")
    txns = {"shop/orders/3": 0, "shop/orders/4": -1, "other/orders/3": 9, "query": 1}
    assert ids.read(txns) == {TP: 0, TopicPartition("orders", 4): -1}


def test_partitions_are_looked_up_in_the_txns_of_a_log() -> None:
    """A partition without a txn has None, not 0."""
    ids = AppIds(DEFAULT_TEMPLATE, "shop")
    other = TopicPartition("orders", 4)
    assert ids.look_up({"shop/orders/3": 0}, [TP, other]) == {TP: 0, other: None}


# --- templates ---


@pytest.mark.parametrize("template", [DEFAULT_TEMPLATE, *TEMPLATES])
def test_a_template_that_names_all_three_is_taken(template: str) -> None:
    """With the topic in it a template serves any number of topics."""
    check_template(template, topics=None)


@pytest.mark.parametrize(
    ("template", "topics", "says"),
    [
        ("{app_id}/{topic}", 1, "must name"),
        ("{topic}/{partition}", 1, "must name"),
        ("{app_id}/{partition}/{partition}", 1, "must name"),
        ("{app_id}/{app_id}/{partition}", 1, "must name"),
        ("{app_id}/{topic}/{topic}/{partition}", 1, "must name"),
        ("{app_id}/{topics}/{partition}", 1, "unknown placeholder"),
        ("{app_id}/{topic}/{partition}}", 1, "unknown placeholder"),
        ("{app_id}{topic}/{partition}", 1, "separator"),
        ("{app_id}/{topic}{partition}", 1, "separator"),
        ("{app_id}/{topic}7{partition}", 1, "separator"),
        (KDI_TEMPLATE, 2, "no {topic}"),
        (KDI_TEMPLATE, None, "no {topic}"),
    ],
)
def test_a_template_that_confuses_partitions_is_refused(template: str, topics: int | None, says: str) -> None:
    """Two partitions with one app id would lose rows, so the configuration is refused."""
    with pytest.raises(ConfigError) as refused:
        check_template(template, topics=topics)
    assert says in refused.value.message


def test_a_template_without_topic_is_taken_for_one_topic() -> None:
    """That is what kafka-delta-ingest writes."""
    check_template(KDI_TEMPLATE, topics=1)


# --- moved ---


def test_a_txn_that_is_not_what_a_batch_was_built_on_has_moved() -> None:
    """Appeared, vanished, risen, fallen: all of it is moved, and 0 is not None."""
    tps = [TopicPartition("t", number) for number in range(6)]
    expected = dict(zip(tps, [None, 0, 5, 5, None, 5], strict=True))
    actual = dict(zip(tps, [0, None, 6, 4, None, 5], strict=True))
    assert moved(expected, actual) == {
        tps[0]: (None, 0),
        tps[1]: (0, None),
        tps[2]: (5, 6),
        tps[3]: (5, 4),
    }


def test_txns_of_other_partitions_are_no_concern_of_a_batch() -> None:
    """Several ingestors share a table, each with partitions of its own."""
    assert moved({TP: 1}, {TP: 1, TopicPartition("orders", 4): 9}) == {}


# --- placement ---


@pytest.mark.parametrize(
    ("txn", "low", "high", "recreated", "placed"),
    [
        (None, 5, 9, False, Placement(5, 5)),
        (-1, 0, 9, False, Placement(0, 0)),
        (6, 5, 9, False, Placement(7, 7)),
        (8, 5, 9, False, Placement(9, 9)),
        (4, 5, 9, False, Placement(5, 5)),
        (2, 5, 9, False, Placement(5, 5, Gap(TP, 3, 4, "retention"))),
        (-1, 5, 5, False, Placement(5, 5, Gap(TP, 0, 4, "retention"))),
        (9, 5, 9, False, Placement(10, 9, Gap(TP, 9, 9, "truncated"))),
        (9, 0, 0, False, Placement(10, 0, Gap(TP, 0, 9, "truncated"))),
        (6, 0, 3, True, Placement(7, 3, Gap(TP, 0, 6, "recreated"))),
        (6, 0, 20, True, Placement(7, 7, Gap(TP, 0, 6, "recreated"))),
    ],
)
def test_a_partition_is_placed_where_the_table_ends(
    txn: int | None, low: int, high: int, *, recreated: bool, placed: Placement
) -> None:
    """Where Kafka can't go on there, the gap says which offsets are lost."""
    assert place(TP, txn, low=low, high=high, recreated=recreated) == placed


@given(
    txn=st.none() | st.integers(-1, 50),
    low=st.integers(0, 50),
    length=st.integers(0, 50),
    recreated=st.booleans(),
)
def test_a_placement_never_takes_a_record_twice_nor_skips_one_unsaid(
    txn: int | None, low: int, length: int, *, recreated: bool
) -> None:
    """From the txn to the position every offset that Kafka had is in the gap, and none landed."""
    high = low + length
    placed = place(TP, txn, low=low, high=high, recreated=recreated)
    assert low <= placed.fetch_from <= high
    assert placed.fetch_from <= placed.position
    if txn is None:
        assert placed == Placement(low, low)
        return
    assert placed.position > txn
    if placed.gap is not None:
        # Of a recreated topic all offsets that the table would have to skip may be gone already.
        assert placed.gap.offsets > 0 or recreated
        assert placed.gap.last == placed.position - 1
    elif not recreated:
        assert placed.position == txn + 1


def test_a_gap_says_what_was_lost() -> None:
    """Both ends are included."""
    gap = Gap(TP, 3, 7, "retention")
    assert gap.offsets == 5
    assert str(gap) == "orders:3 offsets 3 to 7 (retention)"
