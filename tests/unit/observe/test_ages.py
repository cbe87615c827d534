"""How long records have been waiting that the table lacks, by a clock that is told."""

from __future__ import annotations

import pytest

from ingestor.observe.ages import LOOKED_UP_MAX, Ages
from ingestor.observe.snapshot import Row
from ingestor.records import TopicPartition

ONE, TWO = TopicPartition("events", 1), TopicPartition("events", 2)
ROW = Row(ONE, position=None, lacks=5, committed=4, record_ms=-1, first_ms=-1, end=9, low=0, open_at=None)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ages(clock: Clock) -> Ages:
    return Ages(clock=clock)


def test_nothing_missing_is_no_age(ages: Ages) -> None:
    assert ages.behind([]) == 0
    assert ages.behind([ROW._replace(lacks=9)]) == 0


def test_the_oldest_counts(ages: Ages) -> None:
    rows = [ROW._replace(first_ms=900_000), ROW._replace(tp=TWO, first_ms=950_000)]
    assert ages.behind(rows) == 100


def test_a_record_from_the_future_is_no_younger_than_now(ages: Ages) -> None:
    assert ages.behind([ROW._replace(first_ms=2_000_000)]) == 0


def test_what_was_not_read_counts_from_when_it_was_missed_first(ages: Ages, clock: Clock) -> None:
    """Until it is looked up; the next record that is missing is another one."""
    assert ages.behind([ROW]) == 0
    clock.now += 30
    assert ages.behind([ROW]) == 30
    assert ages.behind([ROW._replace(lacks=6)]) == 0


def test_what_was_looked_up_counts_from_when_it_was_written(ages: Ages, clock: Clock) -> None:
    assert ages.unknown([ROW]) == {}
    clock.now += 10
    assert ages.unknown([ROW]) == {ONE: (5, 9)}
    ages.found({ONE: (5, 9)}, {ONE: 400_000})
    assert ages.behind([ROW]) == 610
    assert ages.unknown([ROW._replace(end=20)]) == {}


def test_a_record_without_a_timestamp_counts_from_when_it_was_missed(ages: Ages, clock: Clock) -> None:
    ages.unknown([ROW])
    clock.now += 10
    ages.found({ONE: (5, 9)}, {ONE: -1})
    assert ages.behind([ROW]) == 10
    assert ages.unknown([ROW]) == {}


def test_where_no_record_is_nothing_waits_until_kafka_has_more(ages: Ages, clock: Clock) -> None:
    """Transaction markers are never in any table."""
    ages.unknown([ROW])
    clock.now += 10
    ages.found({ONE: (5, 9)}, {ONE: None})
    assert ages.behind([ROW]) == 0
    assert ages.unknown([ROW]) == {}
    assert ages.unknown([ROW._replace(end=10)]) == {ONE: (5, 10)}


def test_an_answer_that_comes_too_late_says_nothing(ages: Ages, clock: Clock) -> None:
    ages.unknown([ROW])
    clock.now += 10
    newer = ROW._replace(lacks=7)
    assert ages.behind([newer]) == 0
    ages.found({ONE: (5, 9)}, {ONE: 1000})
    clock.now += 20
    assert ages.behind([newer]) == 20


def test_what_is_in_hand_or_not_in_kafka_is_not_looked_up(ages: Ages, clock: Clock) -> None:
    rows = [ROW._replace(first_ms=1), ROW._replace(tp=TWO, end=None)]
    ages.behind(rows)
    clock.now += 60
    assert ages.unknown(rows) == {}


def test_few_are_looked_up_at_a_time(ages: Ages, clock: Clock) -> None:
    rows = [ROW._replace(tp=TopicPartition("events", number)) for number in range(LOOKED_UP_MAX + 50)]
    ages.behind(rows)
    clock.now += 60
    assert len(ages.unknown(rows)) == LOOKED_UP_MAX


def test_partitions_that_went_are_forgotten(ages: Ages, clock: Clock) -> None:
    ages.behind([ROW])
    clock.now += 60
    ages.forget_all_but([TWO])
    assert ages.behind([ROW]) == 0
