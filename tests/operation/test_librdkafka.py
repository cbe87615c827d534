"""The native intake holds with the oldest and the newest confluent-kafka that pyproject.toml allows.

Every other test runs with the version that the locks pin. Here a wheel of another one stands before it on Python's
path, and the intake's own tests run on its librdkafka.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ingestor.kafka.native import library
from tests.support.tools import cache

ROOT = Path(__file__).parents[2]
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
(ALLOWED,) = [each for each in DEPENDENCIES if each.startswith("confluent-kafka")]
LOWEST = re.search(r">=([\d.]+)", ALLOWED)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(library.load()[0] is None, reason=f"no native intake: {library.load()[1]}"),
]


def fetched(requirement: str) -> Path:
    """Return a folder with a version of confluent-kafka and nothing else, fetched once."""
    folder = cache.root() / "confluent-kafka" / re.sub(r"[^\d.]+", "-", requirement).strip("-")
    with cache.locked(folder.with_suffix(".lock")):
        if not (folder / "confluent_kafka").is_dir():
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            install += ["--only-binary", ":all:", "--target", str(folder), requirement]
            subprocess.run(install, check=True, timeout=300)
    return folder


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_native_intake_holds_with_it(which: str, tmp_path: Path) -> None:
    assert LOWEST is not None
    folder = fetched(f"confluent-kafka=={LOWEST[1]}.*" if which == "oldest" else ALLOWED)
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": ""}
    where = [sys.executable, "-c", "import confluent_kafka; print(confluent_kafka.__file__)"]
    found = subprocess.run(where, env=environment, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
    assert found.stdout.startswith(str(folder)), "another confluent_kafka came first"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "tests")]
    tests += ["-k", "not shipped", "tests/unit/kafka/test_native.py"]  # that one is about the pinned version
    done = subprocess.run(tests, env=environment, capture_output=True, text=True, check=False, timeout=500, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert re.search(r"\d\d passed", done.stdout), done.stdout[-500:]
