"""A log that is gone is believed when it stays gone: one listing may be cut short on its way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import DeltaError, TableNotFoundError

from ingestor.delta import open as table_open
from ingestor.delta.open import believed
from ingestor.errors import RefusedError
from ingestor.records import RawSchema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def looking(*answers: str) -> Callable[[], str]:
    """Return a look at the log that finds these one after the other: a version, or what delta-rs raises."""
    left = list(answers)

    def look() -> str:
        answer = left.pop(0)
        if answer.isdecimal():
            return answer
        raise DeltaError(answer)

    return look


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_open, "_LOOK_AGAIN_SECONDS", (0, 0))


def test_a_log_that_comes_back_was_never_gone() -> None:
    """The next look counts."""
    assert believed(looking("Invalid table version: 0", "7")) == "7"


def test_a_log_that_stays_gone_is_told() -> None:
    """Three looks, and not one more."""
    with pytest.raises(RefusedError, match="log is gone"):
        believed(looking(*["Invalid table version: 0"] * 3, "7"))


def test_nothing_else_is_looked_at_again() -> None:
    """Whoever asked decides about it."""
    with pytest.raises(DeltaError, match="reset by peer"):
        believed(looking("reset by peer", "7"))


def test_a_table_that_is_not_there_is_no_log_that_is_gone() -> None:
    """It may have to be created."""
    with pytest.raises(TableNotFoundError):
        believed(_no_table)


def _no_table() -> None:
    raise TableNotFoundError("none")


def test_of_many_who_create_a_table_at_once_one_does(tmp_path: Path) -> None:
    """A second try by delta-rs would put another schema and protocol behind the first entry."""
    for number in range(6):
        place = tmp_path / str(number)
        ready = threading.Barrier(8)

        def create(place: Path = place, ready: threading.Barrier = ready) -> None:
            ready.wait()
            assert table_open._create(str(place), RawSchema(), {}).version() == 0

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(create) for _ in range(8)]:
                done.result()
        assert [path.name for path in (place / "_delta_log").glob("*.json")] == [f"{0:020d}.json"]
