"""The audit shares nothing with the way in that decides about offsets, so that a fault there can't hide here too."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ingestor.audit

FOLDER = Path(ingestor.audit.__file__).parent
# Words, the opening of stores and clients, and the texts of their failures: nothing of it knows a position.
SHARED = {"errors", "delta.failures", "records", "delta.storage", "kafka.broker", "kafka.by_hand", "kafka.ranges"}
# What decides where to go on, what is landed, or how a record is read: nothing of it may come along behind those.
WAY_IN = {
    "commands",
    "config",
    "delta.deltalog",
    "delta.guards",
    "delta.open",
    "delta.removals",
    "delta.rules",
    "delta.stats",
    "delta.table",
    "delta.table_log",
    "ingest",
    "kafka.consumer",
    "kafka.extract",
    "kafka.intake",
    "kafka.native",
    "kafka.reader",
    "kafka.source",
    "ledger",
}
IMPORT_ALL = """
import pkgutil, sys
import ingestor.audit
for module in pkgutil.iter_modules(ingestor.audit.__path__, "ingestor.audit."):
    __import__(module.name)
print(*sorted(name for name in sys.modules if name.startswith("ingestor.")))
"""


def named(source: Path) -> set[str]:
    """Return the modules of `ingestor` that a module names: also for types, and in functions."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{source.name} imports relative to itself"
            folder = FOLDER.parents[1] / node.module.replace(".", "/")
            modules = {f"{node.module}.{alias.name}" for alias in node.names if (folder / f"{alias.name}.py").exists()}
            found |= modules or {node.module}
    return {name.removeprefix("ingestor.") for name in found if name.startswith("ingestor")}


@pytest.mark.parametrize("source", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_the_audit_names_no_module_of_the_way_in(source: Path) -> None:
    """Not even for a type."""
    assert {name for name in named(source) if name.partition(".")[0] != "audit"} <= SHARED


def test_the_command_brings_the_audit_nothing_but_settings() -> None:
    """What lies between the command line and the audit decides nothing either."""
    assert named(FOLDER.parent / "commands" / "audit.py") <= {
        "audit",
        "audit.consumer",
        "config.settings",
        "errors",
    }


def test_the_audit_brings_no_module_of_the_way_in_with_it() -> None:
    """Neither does what it imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=FOLDER.parent.parent,
    )
    loaded = {name.removeprefix("ingestor.") for name in done.stdout.split()}
    assert {"audit", *SHARED} <= loaded
    assert not [name for name in loaded for way in WAY_IN if f"{name}.".startswith(f"{way}.")]
    assert [way for way in WAY_IN if not (FOLDER.parent / way.replace(".", "/")).with_suffix(".py").exists()] == [
        way for way in WAY_IN if (FOLDER.parent / way.replace(".", "/")).is_dir()
    ]
