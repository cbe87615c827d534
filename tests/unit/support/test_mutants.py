"""Each mutant still finds what it breaks, so that a change of the code is noticed at once, not by the next long run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.mutant import Mutant, NotFoundError, all_mutants

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for package in ("ingestor", "spark_jobs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.jar", "*.so"))
    return folder


def test_every_mutant_finds_its_place_and_its_tests(sources: Path) -> None:
    lost = []
    for mutant in all_mutants():
        try:
            changed = mutant.apply(sources)
        except NotFoundError as error:
            lost.append(f"{mutant.name}: {error}")
            continue
        whole = (ROOT / changed.relative_to(sources)).read_text()
        assert changed.read_text() != whole, mutant.name
        changed.write_text(whole)
        lost += [f"{mutant.name}: {test}" for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
    assert lost == []


def test_no_two_mutants_have_one_name() -> None:
    names = [mutant.name for mutant in all_mutants()]
    assert sorted(names) == sorted(set(names))


def test_a_mutant_survives_a_module_that_moves(tmp_path: Path) -> None:
    (tmp_path / "ingestor" / "elsewhere").mkdir(parents=True)
    module = tmp_path / "ingestor" / "elsewhere" / "anything.py"
    module.write_text("class Purse:\n    def pay(self):\n        return 1\n\n    def earn(self):\n        return 1\n")
    mutant = Mutant("pays twice", at="Purse.pay", old="return 1", new="return 2", tests=())
    assert mutant.apply(tmp_path) == module
    assert module.read_text().count("return 2") == 1
    with pytest.raises(NotFoundError, match="0 times"):
        mutant.apply(tmp_path)
    with pytest.raises(NotFoundError, match=r"Purse\.save is there 0 times"):
        Mutant("saves", at="Purse.save", old="return 1", new="return 2", tests=()).apply(tmp_path)
