"""The native dictionary: each value once, and every row finds its own again."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestor.kafka.native import build, library
from ingestor.kafka.native.dictionary import Dictionary, new_dictionary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(library.load()[0] is None, reason=f"no native library: {library.load()[1]}")


def binary(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def read(dictionary: Dictionary, numbers: list[int]) -> list[bytes | None]:
    """Return what numbers stand for."""
    values = dictionary.values().to_pylist()
    return [None if number < 0 else values[number] for number in numbers]


def test_values_are_numbered_as_they_come() -> None:
    """Also over several portions; a null is none."""
    dictionary = new_dictionary()
    assert dictionary.add(binary([b"b", b"a", b"b", None, b""])).tolist() == [0, 1, 0, -1, 2]
    assert dictionary.add(binary([b"", b"c", b"a"])).tolist() == [2, 3, 1]
    assert dictionary.values().to_pylist() == [b"b", b"a", b"", b"c"]
    assert len(dictionary) == 4
    assert dictionary.nbytes == 3 + 4 * 20


@given(
    portions=st.lists(st.lists(st.none() | st.binary(max_size=70) | st.sampled_from([b"x" * 64, b"x" * 65]))),
    skipped=st.integers(0, 9),
)
def test_every_row_finds_its_value_again(portions: list[list[bytes | None]], skipped: int) -> None:
    """Whatever the values are, and wherever in its buffers a column begins."""
    dictionary = new_dictionary()
    numbers = [dictionary.add(binary([b"before", None] * skipped + portion).slice(2 * skipped)) for portion in portions]
    held = dictionary.values().to_pylist()
    for portion, found in zip(portions, numbers, strict=True):
        assert [None if number < 0 else held[number] for number in found.tolist()] == portion
    assert held == list(dict.fromkeys(value for portion in portions for value in portion if value is not None))


@pytest.mark.parametrize("size", [0, 7, 8, 31, 32, 33, 1_000])
def test_many_values_that_differ_little_stay_apart(size: int) -> None:
    """More than it had room for, so that it has to look for a place and to grow again and again."""
    rng = random.Random(size)
    values = [rng.randbytes(4) + bytes(size) + rng.randbytes(1) for _ in range(20_000)]
    dictionary = new_dictionary()
    numbers = dictionary.add(binary(values + values[::-1])).tolist()
    assert read(dictionary, numbers) == values + values[::-1]
    assert len(dictionary) == len(set(values))


def test_values_that_meet_in_one_place_stay_apart(tmp_path: Path) -> None:
    """With a hash of one bit they all do; it only tells where to look, never what a value is."""
    target = tmp_path / "lib.so"
    assert build.build(target=target, flags=("-DHASH_MASK=1",)) == ""
    values = [b"%d" % number for number in range(2_000)]
    dictionary = Dictionary(library.Native(target))
    assert read(dictionary, dictionary.add(binary(values + values)).tolist()) == values + values
    assert len(dictionary) == 2_000


@pytest.mark.parametrize("values", [[], [None] * 9, [b""], [b"", None]])
def test_columns_without_a_byte_are_columns_too(values: list[bytes | None]) -> None:
    """Arrow gives them no buffers, or empty ones."""
    dictionary = new_dictionary()
    assert read(dictionary, dictionary.add(binary(values)).tolist()) == values
    assert len(dictionary) == int(b"" in values)


def test_a_value_may_be_larger_than_all_that_came_before() -> None:
    """Kafka's records may have many MiB."""
    large = [bytes([number]) * (9 << 20) for number in range(3)]
    dictionary = new_dictionary()
    assert read(dictionary, dictionary.add(binary([b"small", *large, *large])).tolist()) == [b"small", *large, *large]


def test_values_outlive_their_dictionary() -> None:
    """Whoever writes them need not know where they lie."""
    dictionary = new_dictionary()
    dictionary.add(binary([b"x" * 100_000, b"y" * 100_000]))
    values = dictionary.values()
    del dictionary
    gc.collect()
    new_dictionary().add(binary([b"z" * 300_000]))
    assert values.to_pylist() == [b"x" * 100_000, b"y" * 100_000]


def test_memory_goes_back_with_the_last_who_holds_it() -> None:
    """There is one dictionary for each row group, for months."""
    column = binary([bytes([number]) * 100_000 for number in range(40)])
    process, sizes = psutil.Process(), []
    for _ in range(60):
        dictionary = new_dictionary()
        dictionary.add(column)
        dictionary.values()
        del dictionary
        sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[9] < 10 * 4_000_000  # of 50 * 4 MB that came meanwhile


def test_nothing_is_added_to_values_that_somebody_has() -> None:
    """They lie in the dictionary's own memory, which might move."""
    dictionary = new_dictionary()
    dictionary.add(binary([b"x"]))
    values = dictionary.values()
    with pytest.raises(TypeError, match="only until somebody has its own"):
        dictionary.add(binary([b"y"]))
    assert values.to_pylist() == [b"x"]


def test_only_binary_columns_are_taken() -> None:
    """Others have another layout."""
    with pytest.raises(TypeError, match="large_binary"):
        new_dictionary().add(pa.array([b"x"], pa.large_binary()))


def test_without_memory_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no numbers that stand for nothing."""
    native = library.load()[0]
    assert native is not None
    dictionary = Dictionary(native)
    monkeypatch.setattr(native, "dictionary_add", lambda *_: 0)
    with pytest.raises(MemoryError):
        dictionary.add(binary([b"x"]))
    monkeypatch.undo()
    with pytest.raises(TypeError):
        dictionary.add(binary([b"x"]))  # what is in it may be half of a value
    monkeypatch.setattr(native, "dictionary_new", lambda _: None)
    with pytest.raises(MemoryError):
        Dictionary(native)
