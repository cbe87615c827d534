"""The files of a checkpoint: the store's own, and the ones in memory that quick tests use instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.runtime.places import Files
from tests.support.fakes.files import MemoryFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "spark"])
def files(request: pytest.FixtureRequest) -> Any:
    return MemoryFiles({}) if request.param == "memory" else Files(request.getfixturevalue("spark"))


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_of_two_that_create_a_file_the_first_wins(files: Any, tmp_path: Path) -> None:
    here = f"{tmp_path}/checkpoint"
    assert files.names(here) == []
    assert files.read(f"{here}/steps/1.json") is None
    assert files.create(f"{here}/steps/1.json", "first")
    assert not files.create(f"{here}/steps/1.json", "second")
    assert files.read(f"{here}/steps/1.json") == "first\n"
    files.replace(f"{here}/steps/1.json", "third")
    assert files.create(f"{here}/steps/2.json", "fourth")
    assert files.read(f"{here}/steps/1.json") == "third\n"
    assert sorted(files.names(f"{here}/steps")) == ["1.json", "2.json"]
    assert files.names(here) == ["steps"]
    files.remove(f"{here}/steps/1.json")
    files.remove(f"{here}/steps/1.json")
    assert files.names(f"{here}/steps") == ["2.json"]
    files.remove(here)
    assert files.names(here) == []
