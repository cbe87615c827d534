"""The model of a disk that the power is cut from: by small histories made by hand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.support.powercut.disk import PAGE_BYTES, Disk
from tests.support.powercut.operations import Kind, Operation
from tests.support.powercut.states import sample, states

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE, OTHER = 1, 2


def make(path: str, inode: int = FILE) -> Operation:
    return Operation(Kind.OPEN, path, inode=inode)


def write(content: bytes, at: int = 0, inode: int = FILE) -> Operation:
    return Operation(Kind.WRITE, inode=inode, number=at, content=content)


def sync(inode: int = FILE) -> Operation:
    return Operation(Kind.SYNC, inode=inode)


def sync_folder(path: str = "") -> Operation:
    return Operation(Kind.SYNC_FOLDER, path)


def mkdir(path: str) -> Operation:
    return Operation(Kind.MKDIR, path)


def unlink(path: str) -> Operation:
    return Operation(Kind.UNLINK, path)


def link(path: str, target: str) -> Operation:
    return Operation(Kind.LINK, path, target)


def rename(path: str, target: str) -> Operation:
    return Operation(Kind.RENAME, path, target)


def said(text: bytes) -> Operation:
    return Operation(Kind.NOTE, content=text)


def disk_after(*operations: Operation) -> Disk:
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    return disk


def possible(*operations: Operation) -> list[Mapping[str, bytes | None]]:
    """Return what may stand there if the power is cut after these operations, each state once."""
    found: list[Mapping[str, bytes | None]] = []
    for tree in disk_after(*operations).after_a_cut(random.Random(0)):
        if tree not in found:
            found.append(tree)
    return found


def contents(*operations: Operation) -> set[bytes | None]:
    """Return what the one file may hold."""
    return {content for tree in possible(*operations) for content in tree.values()}


def test_nothing_lasts_that_was_not_synced() -> None:
    """The file may be there whole, empty, or not at all, and so may its bytes be zeros."""
    found = possible(make("a"), write(b"xy"))
    for tree in ({}, {"a": b""}, {"a": b"xy"}, {"a": b"\0\0"}, {"a": b"x"}):
        assert tree in found
    assert len(found) == 5


def test_a_synced_file_in_a_synced_folder_lasts() -> None:
    assert possible(make("a"), write(b"xy"), sync(), sync_folder()) == [{"a": b"xy"}]


def test_a_synced_file_has_no_name_yet() -> None:
    assert possible(make("a"), write(b"xy"), sync()) == [{"a": b"xy"}, {}]


def test_a_synced_name_has_no_bytes_yet() -> None:
    found = possible(make("a"), write(b"xy"), sync_folder())
    assert {} not in found
    assert {"a": b""} in found


def test_what_is_written_after_a_sync_may_be_lost() -> None:
    """The old bytes are there in its place, or the new size with zeros."""
    found = contents(make("a"), write(b"old"), sync(), sync_folder(), write(b"new", 3))
    assert {b"old", b"oldnew", b"old\0\0\0"} <= found
    assert all(content is not None and content.startswith(b"old") for content in found)


def test_any_page_may_be_lost() -> None:
    pages = [bytes([n]) * PAGE_BYTES for n in (1, 2, 3)]
    found = contents(make("a"), sync_folder(), write(b"".join(pages)))
    zeros = bytes(PAGE_BYTES)
    assert {pages[0] + zeros + pages[2], zeros + pages[1] + pages[2], pages[0] + pages[1] + zeros} <= found
    assert {pages[0], pages[0] + pages[1]} <= found


def test_a_text_may_end_with_a_line() -> None:
    assert b"one\n" in contents(make("a"), sync_folder(), write(b"one\ntwo\n"))


def test_a_file_that_is_written_over_has_the_old_bytes_the_new_ones_or_none() -> None:
    again = Operation(Kind.OPEN, "a", inode=FILE, number=1)
    found = contents(make("a"), write(b"old"), sync(), sync_folder(), again, write(b"newer"))
    assert {b"old", b"newer", b""} <= found


def test_a_file_that_is_cut_off_may_be_whole_still() -> None:
    cut = Operation(Kind.TRUNCATE, inode=FILE, number=1)
    assert contents(make("a"), write(b"old"), sync(), sync_folder(), cut) >= {b"old", b"o"}


def test_a_folder_s_names_last_without_the_folder_s_own_name() -> None:
    """Every folder above has to be synced, too."""
    inner = (mkdir("a"), make("a/b"), sync(), sync_folder("a"))
    assert possible(*inner) == [{"a": None, "a/b": b""}, {}]
    assert possible(*inner, sync_folder()) == [{"a": None, "a/b": b""}]


def test_names_are_lost_one_by_one() -> None:
    found = possible(mkdir("a"), mkdir("b"), mkdir("c"))
    assert len(found) == 8


def test_a_link_may_be_there_before_what_was_done_earlier() -> None:
    """In any order: the name that was removed is still there, or both are, or only the new one."""
    found = possible(make("a"), sync(), sync_folder(), link("a", "b"), unlink("a"))
    assert sorted(map(sorted, found)) == [[], ["a"], ["a", "b"], ["b"]]


def test_a_rename_is_there_whole_or_not_at_all() -> None:
    """It takes the place of another file at once."""
    both = (make("a"), write(b"a"), sync(), make("b", OTHER), write(b"b", inode=OTHER), sync(OTHER), sync_folder())
    assert possible(*both, rename("a", "b")) == [{"b": b"a"}, {"a": b"a", "b": b"b"}]


@pytest.mark.parametrize("synced", ["one", "other"])
def test_a_rename_between_folders_lasts_with_either(synced: str) -> None:
    made = (mkdir("one"), mkdir("other"), sync_folder(), make("one/a"), sync(), sync_folder("one"))
    assert len(possible(*made, rename("one/a", "other/a"))) == 2
    assert possible(*made, rename("one/a", "other/a"), sync_folder(synced)) == [
        {"one": None, "other": None, "other/a": b""}
    ]


def test_a_later_name_wins_though_an_earlier_one_lasted_later() -> None:
    """The older of two changes to a name, when it comes to the disk after the newer one, changes nothing."""
    made = (mkdir("x"), mkdir("y"), sync_folder(), make("y/a"), make("x/b", OTHER), rename("x/b", "y/a"))
    lasting = disk_after(*made, sync_folder("x"), sync_folder("y")).lasting()
    assert lasting == {"x": None, "y": None, "y/a": b""}
    assert disk_after(*made, write(b"b", inode=OTHER)).tree()["y/a"] == b"b"


def test_many_loose_ends_are_tried_each_alone_and_sampled() -> None:
    names = [f"{n:02d}" for n in range(12)]
    found = possible(*map(mkdir, names))
    everything = dict.fromkeys(names)
    assert everything in found
    assert {} in found
    for name in names:
        assert {name: None} in found
        assert {other: None for other in names if other != name} in found
    assert len(found) > 60


def test_the_least_is_what_was_synced() -> None:
    assert disk_after(make("a"), write(b"xy"), sync_folder(), make("b", OTHER)).lasting() == {"a": b""}


def test_a_state_goes_with_what_was_acknowledged_by_then() -> None:
    """Of equal disks the one that promises most counts; a line may come in pieces, and other lines say nothing."""
    history = (
        *(make("a"), sync(), sync_folder(), said(b'{"event": "committed", "ver')),
        *(said(b'sion": 3}\nplain text\n'), said(b'{"event": "placed"}\n')),
    )
    found = states(history, seed=0)
    assert [(dict(state.tree), state.acknowledged) for state in found] == [({}, -1), ({"a": b""}, 3)]


def test_a_sample_has_the_telling_states_first_and_no_more_than_was_asked_for() -> None:
    """What was synced alone, and all but one name."""
    found = states([mkdir(str(n)) for n in range(5)], seed=0)
    telling = [{str(n): None for n in range(count) if n != lost} for count in range(1, 6) for lost in range(count)]
    picked = sample(found, 20, seed=0)
    assert len(picked) == 20
    assert all(dict(state.tree) in [{}, *telling] for state in found if state.telling)
    assert [state.telling for state in picked] == sorted((state.telling for state in picked), reverse=True)
    assert len(sample(found, 1_000, seed=0)) == len(found)


def test_all_but_one_name() -> None:
    found = list(disk_after(mkdir("a"), sync_folder(), mkdir("b"), mkdir("c")).without_one_name())
    assert found == [{"a": None, "c": None}, {"a": None, "b": None}]
