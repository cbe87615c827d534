"""What works beside a test ends with its block, and can fail it."""

from __future__ import annotations

import pytest

from tests.support.process.background import Background


class Sleepers(Background):
    def __init__(self) -> None:
        super().__init__(self._sleep, self._sleep)
        self.woken: list[bool] = []

    def _sleep(self) -> None:
        self.woken.append(self._ending.wait(60))


def fall() -> None:
    raise OSError("it fell")


def test_jobs_run_until_the_block_ends() -> None:
    """All of them are told, and waited for."""
    with Sleepers() as sleepers:
        assert sleepers.woken == []
    assert sleepers.woken == [True, True]


def test_what_a_job_raises_is_raised_where_the_block_ends() -> None:
    """Nobody passes a test whose other half fell over."""
    with pytest.raises(OSError, match="it fell"), Background(fall):
        pass


def test_a_job_that_fell_does_not_hide_what_the_block_raised() -> None:
    """Both are shown, for one may explain the other."""
    with pytest.raises(OSError, match="it fell") as raised, Background(fall):
        raise ValueError
    assert isinstance(raised.value.__context__, ValueError)
