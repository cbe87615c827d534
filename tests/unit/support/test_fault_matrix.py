"""The fault matrix names tests that exist, and each of its rows names one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MATRIX = ROOT / "faults" / "README.md"


def _tests_in(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))


def named() -> set[str]:
    return set(re.findall(r"`(test_\w+)`", MATRIX.read_text()))


def test_every_test_that_the_matrix_names_exists() -> None:
    existing = set().union(*(_tests_in(path) for path in ROOT.rglob("test_*.py")))
    assert named() - existing == set()
    files = set(re.findall(r"`(test_\w+\.py)`", MATRIX.read_text()))
    assert files - {path.name for path in ROOT.rglob("test_*.py")} == set()


def test_every_row_of_the_matrix_names_a_test() -> None:
    rows = [
        line for line in MATRIX.read_text().splitlines() if line.startswith("| ") and not line.startswith("| fault")
    ]
    rows = [row for row in rows if row not in ("| | test |", "| error | test |")]
    assert len(rows) > 50
    assert [row for row in rows if not re.search(r"`test_\w+(\.py)?`", row)] == []
