"""The package: what is in it, what it installs, and how it speaks on the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ingestor as package
from ingestor import DISTRIBUTION
from ingestor.kafka.native.build import platform_tag
from ingestor.kafka.native.library import load

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSOLE = Path(sys.executable).with_name("ingestor")


def call(*arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """Return what the console script prints."""
    done = subprocess.run(
        [CONSOLE, *arguments],
        env={**os.environ, "COLUMNS": "100", **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built as `make wheel` does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--directory", str(folder)]
    environ = {**os.environ, "INGESTOR_NATIVE": "on"}  # off would build without it
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_the_program_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ingestor/py.typed", "spark_jobs/py.typed", "ingestor/observe/status_page.html", "ingestor/cli.py"} <= names
    assert "ingestor/config/schema.json" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"ingestor", "spark_jobs", "txn_ingestor"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_has_the_native_intake_where_it_can_be_built(built: Path) -> None:
    """It is then one for this platform, and for every Python; what runs here has it, too."""
    (wheel,) = built.glob("*.whl")
    library = "ingestor/kafka/native/libintake.so"
    if shutil.which("cc") is None:
        assert wheel.name.endswith("-py3-none-any.whl")
        assert library not in zipfile.ZipFile(wheel).namelist()
    else:
        assert wheel.name.endswith(f"-{platform_tag()}.whl")
        assert library in zipfile.ZipFile(wheel).namelist()
        assert load() != (None, "this package was built without a C compiler")


def test_the_sdist_holds_what_builds_and_tests_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", ".ci/run", ".dockerignore"),
        *("requirements/dev.txt", "tests/conftest.py", "bench/README.md", "docker/compose.yaml", "docs/operations.md"),
        *("CONTRIBUTING.md", "SECURITY.md", ".editorconfig", ".pre-commit-config.yaml", ".ci/release.py"),
        "ingestor/observe/status_page.html",
    } <= names
    assert not [name for name in names if ".venv" in name or "__pycache__" in name or name.startswith("build/")]


def test_what_runs_is_what_was_installed() -> None:
    """In CI that is the wheel (`make test WHEEL=1`), otherwise these sources."""
    place = Path(str(package.__file__))
    assert ("site-packages" in place.parts) == ("INGESTOR_WHEEL" in os.environ)
    assert call("--version") == f"ingestor {PROJECT['version']}\n"
    assert version(DISTRIBUTION) == PROJECT["version"]


def test_nothing_tells_anyone_to_install_the_ingestor_of_somebody_else(built: Path) -> None:
    """On PyPI that name is taken: what pip, a wheel's name and the texts say must be ours."""
    assert PROJECT["name"] == DISTRIBUTION == "txn-ingestor"
    assert all(path.name.startswith("txn_ingestor-") for path in built.iterdir())
    texts = [ROOT / "Makefile", *ROOT.glob("*.md")]
    for folder in ("ingestor", "spark_jobs", "docs", "docker", "bench", ".ci"):
        texts.extend(path for path in (ROOT / folder).rglob("*") if path.is_file())
    named = re.compile(r"""(pip|uv|pipx)\b[^\n]*install[^\n]*[ '"`]ingestor(?![\w/.-])|\bingestor\[(spark|aws|dev)""")
    found = {str(path): named.findall(path.read_text(errors="replace")) for path in texts}
    assert not {path: hits for path, hits in found.items() if hits}


def test_help_tells_everything_with_examples() -> None:
    """For the program and for each of its commands."""
    text = call("--help")
    assert "ingestor run orders.yaml --once              ingest what is there now" in text
    for code in range(6):
        assert f"{code} " in text.partition("Exit codes: ")[2]
    commands = [line.split()[0] for line in text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines() if line]
    assert {"run", "check", "offsets", "audit", "locate", "dlq", "demo"} <= set(commands)
    for command in commands:
        said = call(command, "--help")
        assert "Example" in said or "COMMAND" in said, command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    environ = {
        "_INGESTOR_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "ingestor off",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "ingestor off",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "offsets" in call(environ=environ)
