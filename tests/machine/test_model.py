"""The protocol's model (docs/model): nothing breaks it, and TLC finds out each break of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.model import runs
from tests.support.judge.tlc import MODEL
from tests.support.mutant import all_mutants

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

README = MODEL / "README.md"
ROOT = MODEL.parents[1]
ALONE = "—"  # a break that no mutant of the code has


def rows(columns: int) -> list[list[str]]:
    """Return the rows of the tables of mutants: with a twin (4 columns), or without one (2)."""
    text = README.read_text().partition("## Breaks")[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if len(row) == columns and row[0] != "mutant" and not row[0].startswith("---")]


def breaks() -> set[str]:
    """Return every break that the specification can switch on."""
    return set(re.findall(r'Broken\("(\w+)"\)', (MODEL / "Commit.tla").read_text()))


@pytest.mark.timeout(600)
def test_nothing_breaks_the_model_and_each_break_is_found_out(tmp_path: Path, summary: Callable[[str], None]) -> None:
    """The code as it is has no counterexample, and each break has the one that the table tells of."""
    done = runs(tmp_path, large=False)
    for name, checked in done:
        summary(f"model, {name}: {checked.distinct:,} states in {checked.seconds:.0f} s")
    found = {example.broken: example for _, checked in done for example in checked.found}
    assert found.keys() == breaks(), "a break without a counterexample, or a counterexample without a break"
    table = {row[1].strip("`"): (row[2], row[3]) for row in rows(4)}
    assert {name: (each.violated, str(len(each.steps))) for name, each in found.items()} == table


def test_each_break_of_the_model_has_its_mutant_and_the_other_way_round() -> None:
    """Mutants of the committer are either broken in the model too, or the table says why not."""
    mutants = {mutant.name: mutant.file(ROOT).name for mutant in all_mutants()}
    named = [row[0] for row in rows(4) + rows(2) if row[0] != ALONE]
    assert len(named) == len(set(named))
    assert set(named) - mutants.keys() == set(), "the table names mutants that are not there"
    assert {name for name, file in mutants.items() if file in ("committer.py", "put.py")} - set(named) == set()
    assert {row[1].strip("`") for row in rows(4)} == breaks()
