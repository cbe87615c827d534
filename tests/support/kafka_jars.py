"""Fetches the jars of a whole Kafka broker once, into the user's cache.

Ivy does the work, from the jar that ships inside pyspark, so nothing has to be installed but Java.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support import cache

KAFKA_VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"
FETCH_SECONDS_MAX = 900
JAVA_MAJOR_MIN = 17

IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ingestor" module="test-broker"/>
  <dependencies defaultconf="default->runtime(default),master">
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.logging.log4j" name="log4j-core" rev="{LOG4J_VERSION}"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{LOG4J_VERSION}"/>
  </dependencies>
</ivy-module>
"""


class BrokerUnavailableError(Exception):
    """No broker can be started on this machine; the message says what is missing."""


def java() -> str:
    """Return the path of a Java that can run a broker."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "in PATH"
        msg = f"a test broker needs Java {JAVA_MAJOR_MIN} or newer; there is no java {where}"
        raise BrokerUnavailableError(msg)
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
        msg = f"a test broker needs Java {JAVA_MAJOR_MIN} or newer; {found} is {version}"
        raise BrokerUnavailableError(msg)
    return found


def fetch(announce: Callable[[str], None] = print) -> Path:
    """Return the folder of jars; the first time in a user's life, download it.

    Of several processes one downloads and the others wait. The folder appears complete or not at
    all, so one that is there can be trusted.
    """
    jars = cache.root() / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars
    with cache.locked(jars.with_name(f"{jars.name}.lock")):
        if not jars.is_dir():
            command = [java(), "-jar", str(_ivy())]
            announce(f"fetching Kafka {KAFKA_VERSION} (45 MB, once; takes about a minute) ...")
            _download(jars, command)
            announce(f"fetched Kafka {KAFKA_VERSION} into {jars}")
    return jars


def _download(target: Path, ivy: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="download-") as name:
        work = Path(name)
        ivy_file = work / "ivy.xml"
        ivy_file.write_text(IVY_FILE)
        command = [*ivy, "-ivy", str(ivy_file), "-cache", str(work / "ivy")]
        command += ["-confs", "default", "-types", "jar", "bundle", "-warn"]
        command += ["-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            msg = f"Kafka's jars did not arrive within {FETCH_SECONDS_MAX} s"
            raise BrokerUnavailableError(msg) from error
        if run.returncode != 0 or not (work / "jars" / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
            tail = "\n".join((run.stdout + run.stderr).splitlines()[-20:])
            msg = f"Kafka's jars could not be fetched; is the network up? Ivy says:\n{tail}"
            raise BrokerUnavailableError(msg)
        (work / "jars").rename(target)


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        msg = "the Ivy that fetches Kafka ships inside pyspark, which is missing: make setup"
        raise BrokerUnavailableError(msg)
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
