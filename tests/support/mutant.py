"""One break of the code, as `tests.mutants` tries it.

A mutant names the symbol that it breaks, not the file: it survives when a module is renamed or moved. The lists lie
beside the tests of what they break: tests/unit/ROOM/mutants.py.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("ingestor", "spark_jobs")
_FUNCTION = re.compile(r"^[a-zA-Z_][\w\s*]*?\b(\w+)\([^;{]*\)\s*\{", re.MULTILINE)


class NotFoundError(LookupError):
    """A symbol, or the text in it, is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in the symbol `at` and becomes `new`; one of `tests` must fail then.

    `at` is a class, a function or a method ("Committer.land"), with its module before a colon if several are called
    so ("guards:check"), a module alone ("delta.failures:"), or a function in C ("intake.c:take").
    """

    name: str
    at: str
    old: str
    new: str
    tests: tuple[str, ...]

    def file(self, root: Path) -> Path:
        """Return the file, below a folder, that has the symbol."""
        return _place(self.at, root)[0]

    def apply(self, root: Path) -> Path:
        """Break the sources below a folder; return the file that was broken."""
        path, first, last = _place(self.at, root)
        text = path.read_text()
        body = text[first:last]
        if body.count(self.old) != 1:
            msg = f"{self.at} has its text {body.count(self.old)} times: write the mutant anew"
            raise NotFoundError(msg)
        path.write_text(text[:first] + body.replace(self.old, self.new) + text[last:])
        return path


def all_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of all rooms."""
    found: list[Mutant] = []
    for path in sorted((_ROOT / "tests" / "unit").rglob("mutants.py")):
        name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        found += importlib.import_module(name).MUTANTS
    return tuple(found)


def _place(at: str, root: Path) -> tuple[Path, int, int]:
    """Return where a symbol stands: its file, and from which character to which."""
    module, _, symbol = at.rpartition(":")
    if module.endswith(".c"):
        places = [place for path in _files(root, module) if (place := _in_c(path, symbol)) is not None]
    else:
        name = f"{module.replace('.', '/')}.py" if module else "*.py"
        places = [place for path in _files(root, name) if (place := _in_python(path, symbol)) is not None]
    if len(places) != 1:
        msg = f"{at} is there {len(places)} times: name its module too, or write the mutant anew"
        raise NotFoundError(msg)
    return places[0]


def _files(root: Path, name: str) -> list[Path]:
    return [path for package in _PACKAGES for path in (root / package).rglob(name)]


def _in_c(path: Path, symbol: str) -> tuple[Path, int, int] | None:
    text = path.read_text()
    for found in _FUNCTION.finditer(text):
        if found[1] == symbol:
            return path, found.start(), text.index("\n}\n", found.start()) + 2
    return None


def _in_python(path: Path, symbol: str) -> tuple[Path, int, int] | None:
    text = path.read_text()
    if not symbol:
        return path, 0, len(text)
    lines = _symbols(text).get(symbol)
    if lines is None:
        return None
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return path, starts[lines[0] - 1], starts[lines[1]]


@lru_cache(maxsize=512)
def _symbols(text: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of each class, function and method of a module."""
    found: dict[str, tuple[int, int]] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[prefix + node.name] = (first, node.end_lineno or node.lineno)
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{prefix}{node.name}.")

    walk(ast.parse(text).body, "")
    return found
