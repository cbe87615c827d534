"""Fetches jars from Maven Central once, into the user's cache.

Ivy does the work, from the jar that ships inside pyspark, so nothing has to be installed but Java.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import cache

FETCH_SECONDS_MAX = 900
JAVA_MAJOR_MIN = 17


class JarsUnavailableError(Exception):
    """Something of Java's can't be had on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """An artifact of Maven's."""

    org: str
    name: str
    rev: str

    @property
    def jar(self) -> str:
        """Return the name of its jar."""
        return f"{self.name}-{self.rev}.jar"


def java() -> str:
    """Return the path of a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "in PATH"
        msg = f"Java {JAVA_MAJOR_MIN} or newer is needed; there is no java {where}"
        raise JarsUnavailableError(msg)
    answer = subprocess.run(
        [found, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    version = next(
        line.split("=")[1].strip()
        for line in answer.stderr.splitlines()
        if "java.specification.version" in line and "vm" not in line
    )
    if float(version) < JAVA_MAJOR_MIN:
        msg = f"Java {JAVA_MAJOR_MIN} or newer is needed; {found} is {version}"
        raise JarsUnavailableError(msg)
    return found


def fetch(folder: str, wanted: Sequence[Dependency], what: str, announce: Callable[[str], None] = print) -> Path:
    """Return a folder of the cache with the jars of these artifacts and all that they need; download it once.

    Of several processes one downloads and the others wait. The folder appears complete or not at all, so one that is
    there can be trusted.
    """
    jars = cache.root() / folder
    if jars.is_dir():
        return jars
    with cache.locked(jars.with_name(f"{jars.name}.lock")):
        if not jars.is_dir():
            command = [java(), "-jar", str(_ivy())]
            announce(f"fetching {what} ...")
            _download(jars, wanted, command)
            announce(f"fetched {folder} into {jars}")
    return jars


def _download(target: Path, wanted: Sequence[Dependency], ivy: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="download-") as name:
        work = Path(name)
        ivy_file = work / "ivy.xml"
        ivy_file.write_text(_module(wanted))
        command = [*ivy, "-ivy", str(ivy_file), "-cache", str(work / "ivy")]
        command += ["-confs", "default", "-types", "jar", "bundle", "-warn"]
        command += ["-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            msg = f"{wanted[0].jar} did not arrive within {FETCH_SECONDS_MAX} s"
            raise JarsUnavailableError(msg) from error
        if run.returncode != 0 or not (work / "jars" / wanted[0].jar).exists():
            tail = "\n".join((run.stdout + run.stderr).splitlines()[-20:])
            msg = f"{wanted[0].jar} could not be fetched; is the network up? Ivy says:\n{tail}"
            raise JarsUnavailableError(msg)
        (work / "jars").rename(target)


def _module(wanted: Sequence[Dependency]) -> str:
    lines = [f'    <dependency org="{each.org}" name="{each.name}" rev="{each.rev}"/>' for each in wanted]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            '  <info organisation="ingestor" module="tests"/>',
            '  <dependencies defaultconf="default->runtime(default),master">',
            *lines,
            "  </dependencies>",
            "</ivy-module>",
            "",
        ]
    )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        msg = "the Ivy that fetches jars ships inside pyspark, which is missing: make setup"
        raise JarsUnavailableError(msg)
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
