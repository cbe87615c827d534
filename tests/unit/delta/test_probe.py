"""What the probe makes of a round, whatever a store does."""

from __future__ import annotations

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import pytest

from ingestor.delta import probe as probing
from ingestor.delta.probe import ROUNDS, WRITERS, Probed, _race, probe
from ingestor.errors import RefusedError

if TYPE_CHECKING:
    from ingestor.delta.table_log import NewEntry, TableLog


class Log:
    """A log whose store answers each writer as a test says; what the last of them wrote stands."""

    def __init__(self, *answers: Exception | None, keeps: bool = True) -> None:
        self.storage = self
        self._answers = list(answers)
        self._keeps = keeps
        self._entry: bytes | None = None
        self._lock = Lock()

    def newest(self) -> int:
        return 0

    def put(self, _version: int, entry: NewEntry, *, after: bytes | None) -> None:
        assert after is None
        with self._lock:
            answer = self._answers.pop(0)
            if self._keeps:
                self._entry = json.dumps({"commitInfo": dict(entry.info)}).encode()
        if answer is not None:
            raise answer

    def read(self, _path: str) -> bytes | None:
        return self._entry


def race(log: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        _race(cast("TableLog", log), pool, "s3://bucket/table")


LOST = OSError("412 Precondition Failed")


def test_one_winner_whose_entry_stands_passes() -> None:
    race(Log(LOST, LOST, LOST, None))


def test_nobody_who_was_told_passes_if_an_entry_stands() -> None:
    """All answers may be lost."""
    race(Log(LOST, LOST, LOST, LOST))


def test_two_winners_are_refused() -> None:
    with pytest.raises(RefusedError, match="2 of 4 writers were told"):
        race(Log(None, LOST, LOST, None))


def test_an_entry_that_is_overwritten_by_a_writer_who_was_told_that_it_lost_is_refused() -> None:
    with pytest.raises(RefusedError, match="a log entry was overwritten"):
        race(Log(None, LOST, LOST, LOST))


def test_where_no_entry_stands_the_reason_of_a_writer_is_told() -> None:
    with pytest.raises(OSError, match="412"):
        race(Log(LOST, LOST, LOST, LOST, keeps=False))


def test_where_an_entry_vanishes_a_writer_tells_why() -> None:
    with pytest.raises(OSError, match="412"):
        race(Log(None, LOST, LOST, LOST, keeps=False))


def test_a_pass_by_luck_is_less_than_one_in_a_million() -> None:
    """Stores that check and then write passed up to 49 of 100 rounds of four writers; 56 would do."""
    assert WRITERS >= 4
    assert 0.56**ROUNDS < 1e-6


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """tests/faults/test_hard_links.py has the real process."""

    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(RefusedError, match="has no hard links") as refused:
        probe(str(tmp_path / "table"), {})
    assert refused.value.exit_code == 4
    assert refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_not_taken_for_one_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(RefusedError, match="the disk is full"):
        probe(str(tmp_path), {})


def test_a_table_that_is_there_is_left_alone_until_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not be ours; one that is new is probed before anything of it is made."""
    asked: list[str] = []
    monkeypatch.setattr(probing, "probe", lambda uri, _options: asked.append(uri))
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "_delta_log").mkdir(parents=True)
    probed = Probed({})
    for opened, expected in ((False, [new]), (True, [new, old]), (True, [new, old])):
        for table in (old, new):
            probed.probe(str(table), opened=opened)
        assert asked == [str(table) for table in expected]
