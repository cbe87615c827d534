"""`make release`: what it builds, and what it refuses to release."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ingestor
from ingestor.kafka.native.build import TARGET, platform_tag

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PURE = f"txn_ingestor-{VERSION}-py3-none-any.whl"
LIBRARY = TARGET.relative_to(Path(ingestor.__file__).parents[1]).as_posix()
JAR = "spark_jobs/jars/ingestor-logstore.jar"
# Whoever asks for the network gets no answer.
OFFLINE = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")} | {"PIP_NO_INDEX": "1"}
WHO = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")

pytestmark = pytest.mark.timeout(300)
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("git", "cc", "javac"))), reason="a release needs git, a C compiler and a JDK"
)


def git(tree: Path, *arguments: str) -> None:
    """Run git without anybody's settings."""
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *WHO, *arguments], cwd=tree, env=environ, capture_output=True, check=True, timeout=60)


def release(tree: Path) -> subprocess.CompletedProcess[str]:
    """Do what `make release` does after its setup, without a network."""
    command = [sys.executable, "-P", str(tree / ".ci" / "release.py")]
    return subprocess.run(
        command, cwd=tree, env={**os.environ, **OFFLINE}, capture_output=True, text=True, check=False, timeout=280
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagged commit of these sources, as a sdist has them, with the jar that `make setup` builds."""
    folder = tmp_path_factory.mktemp("release")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=100)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    made = folder / f"txn_ingestor-{VERSION}"
    git(made, "init", "--quiet")
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "--message", "one")
    git(made, "tag", f"v{VERSION}")
    if (ROOT / JAR).is_file():
        (made / JAR).parent.mkdir()
        shutil.copy2(ROOT / JAR, made / JAR)
    return made


@pytest.fixture(scope="module")
def released(tree: Path) -> Path:
    """The folder with a release."""
    done = release(tree)
    assert done.returncode == 0, done.stderr
    listed = {Path(line).name for line in done.stdout.splitlines()}
    assert listed == {path.name for path in (tree / "dist").iterdir()}
    return tree / "dist"


def names(wheel: Path) -> set[str]:
    """Return the files in a wheel."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}


@needs_tools
def test_a_release_has_a_wheel_with_the_native_intake_and_one_for_everywhere(released: Path) -> None:
    """Both have the jar, and else the same files; the first one is for any Linux with that version of glibc."""
    (native,) = (path for path in released.glob("*.whl") if path.name != PURE)
    tag = native.stem.split("-")[-1]
    assert tag.startswith("manylinux_") if sys.platform == "linux" else platform_tag().endswith(tag)
    assert names(native) - names(released / PURE) == {LIBRARY}
    assert names(released / PURE) - names(native) == set()
    assert JAR in names(native)


@needs_tools
def test_the_checksums_of_a_release_are_those_of_its_files(released: Path) -> None:
    lines = [line.split("  ") for line in (released / "SHA256SUMS").read_text().splitlines()]
    sums = {name: checksum for checksum, name in lines}
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in released.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert len(sums) == 5  # sdist, two wheels, two SBOMs


@needs_tools
@pytest.mark.parametrize(("lock", "ending"), [("ingest", ""), ("spark", "-spark")])
def test_an_sbom_names_what_the_lock_names(lock: str, ending: str, released: Path) -> None:
    """Name, version and hashes of each package, and what they belong to."""
    sbom = json.loads((released / f"txn_ingestor-{VERSION}{ending}.cdx.json").read_text())
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    locked = set(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    assert locked
    assert {(part["name"], part["version"]) for part in sbom["components"]} == locked
    hashes = [item["content"] for part in sbom["components"] for item in part["externalReferences"][0]["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:(\w+)", text))
    assert sbom["metadata"]["component"]["name"] == "txn-ingestor"
    assert sbom["metadata"]["component"]["version"] == VERSION


@needs_tools
def test_the_same_commit_gives_the_same_release(released: Path, tree: Path) -> None:
    before = (released / "SHA256SUMS").read_text()
    assert release(tree).returncode == 0
    assert (released / "SHA256SUMS").read_text() == before


def change(path: Path, change: Callable[[str], str]) -> None:
    """Change a file's text."""
    path.write_text(change(path.read_text()))


@needs_tools
@pytest.mark.parametrize(
    ("file", "changed", "says"),
    [
        ("README.md", lambda text: f"{text}\n", "the tree differs from its commit"),
        ("CHANGELOG.md", lambda text: text.replace(f"[{VERSION}]", "[0.0.9]"), "the newest version"),
        ("CHANGELOG.md", lambda text: re.sub(r" - \d{4}-\d\d-\d\d", " - soon", text), "has no date"),
        ("CHANGELOG.md", lambda text: text.replace("## [", "## [Unreleased]\n\n- new\n\n## [", 1), "under Unreleased"),
        ("docker/kubernetes/kustomization.yaml", lambda text: text.replace(VERSION, "0.0.9", 1), "the image tags"),
        ("pyproject.toml", lambda text: text.replace(f'version = "{VERSION}"', 'version = "9.9.9"'), "is not 9.9.9"),
    ],
)
def test_what_is_no_release_is_refused(
    file: str, changed: Callable[[str], str], says: str, tree: Path, tmp_path: Path
) -> None:
    """Before anything is built."""
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("dist"))
    change(copy / file, changed)
    done = release(copy)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (copy / "dist").exists()


@needs_tools
def test_a_version_whose_tag_is_on_another_commit_is_refused(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("dist"))
    git(copy, "commit", "--quiet", "--allow-empty", "--message", "two")
    done = release(copy)
    assert done.returncode == 2
    assert f"v{VERSION} is the tag of another commit" in done.stderr


@needs_tools
def test_a_release_without_the_jar_is_refused(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("dist", "jars"))
    done = release(copy)
    assert done.returncode == 2
    assert "ingestor-logstore.jar is missing" in done.stderr
