"""Builds the jar with the log stores from `java/`: `python -m spark_jobs.build`. Needs a JDK; `make setup` runs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from spark_jobs.runtime.jars import DELTA_VERSION

_HERE = Path(__file__).parent
TARGET = _HERE / "jars" / "ingestor-logstore.jar"
_SECONDS_MAX = 600
_EPOCH = (2010, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def main() -> int:
    """Compile and pack."""
    compiler = shutil.which("javac")
    if compiler is None:
        sys.stderr.write("spark_jobs: no javac: the jar of the log stores is not built, so Spark jobs can't run\n")
        return 0
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        spark = Path(pyspark.__file__).parent / "jars"
        classes = work / "classes"
        class_path = [_delta_storage(work, spark), *spark.glob("hadoop-client-api-*.jar")]
        sources = sorted((_HERE / "java").rglob("*.java"))
        command = [compiler, "--release", "17", "-Xlint:all", "-Werror", "-d", str(classes)]
        command += ["-cp", ":".join(map(str, class_path)), *map(str, sources)]
        subprocess.run(command, check=True, timeout=_SECONDS_MAX)  # noqa: S603 - the JDK
        _pack(classes)
    return 0


def _delta_storage(work: Path, spark: Path) -> Path:
    ivy = next(spark.glob("ivy-*.jar"))
    command = ["java", "-jar", str(ivy), "-dependency", "io.delta", "delta-storage", DELTA_VERSION]
    command += [
        "-notransitive",
        "-cache",
        str(work / "ivy"),
        "-retrieve",
        f"{work}/[artifact](-[classifier]).[ext]",
        "-warn",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX)  # noqa: S603
    jar = work / "delta-storage.jar"
    if not jar.is_file():
        raise SystemExit(f"spark_jobs: delta-storage could not be fetched:\n{told.stdout[-2000:]}{told.stderr[-2000:]}")
    return jar


def _pack(classes: Path) -> None:
    TARGET.parent.mkdir(exist_ok=True)
    draft = TARGET.with_suffix(".tmp")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _EPOCH), "Manifest-Version: 1.0\n")
        for path in sorted(classes.rglob("*.class")):
            jar.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), _EPOCH), path.read_bytes())
    draft.replace(TARGET)


if __name__ == "__main__":
    sys.exit(main())
