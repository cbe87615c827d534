"""The search for where a partition can be read again behind what is damaged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingestor.kafka.damage import search


@given(st.integers(0, 1000), st.integers(1, 5000), st.integers(0, 5000))
def test_the_end_of_a_damaged_batch_is_found_to_the_offset(damaged: int, length: int, behind: int) -> None:
    """Nothing sound is lost with it, and hardly anything is asked."""
    first_good, end = damaged + length, damaged + length + behind
    asked: list[int] = []

    def readable(offset: int) -> bool:
        assert damaged < offset < end
        asked.append(offset)
        return offset >= first_good

    assert search(readable, damaged, end) == first_good
    assert len(asked) <= 2 * (length + behind).bit_length() + 2


@given(st.sets(st.integers(1, 60), min_size=1))
def test_of_several_damaged_places_each_is_left_behind(bad: set[int]) -> None:
    """Whatever is passed over, reading goes on at something sound, and nothing is passed over twice."""
    at, passed = 0, []
    while at in bad | {0} and at < 61:
        further = search(lambda offset: offset not in bad, at, 61)
        assert further > at
        assert further == 61 or further not in bad
        passed.append(further)
        at = further
    assert passed == sorted(set(passed))
