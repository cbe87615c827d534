"""Builds a release into dist/, from the commit that is checked out: `make release`.

The wheels are built from the unpacked sdist, so what is missing in the sdist is noticed here. One wheel has the native
intake, for Linux with the `manylinux` tag that auditwheel finds; the other has none and runs anywhere. pip takes the
first one where it fits. Beside them lie an SBOM of each lock that users install and the checksums of all files.

Needs no network: `make setup` has installed the tools. The same commit gives the same bytes on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

BIN = Path(sys.executable).parent
JAR = Path("spark_jobs") / "jars" / "ingestor-logstore.jar"
KUSTOMIZATION = Path("docker") / "kubernetes" / "kustomization.yaml"
SBOMS = {"ingest": "", "spark": "-spark"}  # lock: ending of the file's name
_HEADING = re.compile(r"^## \[([^]]+)\](?: - (\S+))?$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SECONDS_MAX = 300


class Refused(Exception):  # noqa: N818 - the message is all that is shown of it
    """The tree is not one to release; says why, and what to do."""


def main() -> int:
    """Check the tree, build, and list what was built."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1], help="what to release")
    tree: Path = parser.parse_args().tree.resolve()
    try:
        version = checked_version(tree)
        files = build(tree, version)
    except Refused as error:
        sys.stderr.write(f"release: {error}\n")
        return 2
    sys.stdout.write("".join(f"{path.relative_to(tree)}\n" for path in files))
    return 0


def checked_version(tree: Path) -> str:
    """Return the version, or refuse: the tree must be a clean commit, and CHANGELOG.md must tell of this version."""
    version: str = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"]
    changelog = (tree / "CHANGELOG.md").read_text()
    headings = [(found[1], found[2], found.end()) for found in _HEADING.finditer(changelog)]
    if headings and headings[0][0] == "Unreleased":
        (_, _, start), *headings = headings
        end = changelog.find("\n## ", start)
        if changelog[start : end if end >= 0 else None].strip():
            raise Refused(f"CHANGELOG.md has entries under Unreleased. Move them under [{version}].")
    if not headings or headings[0][0] != version:
        raise Refused(f"the newest version in CHANGELOG.md is not {version}, as in pyproject.toml. Make both equal.")
    if not _DATE.fullmatch(headings[0][1] or ""):
        raise Refused(f"version {version} has no date in CHANGELOG.md. Write ## [{version}] - YYYY-MM-DD.")
    tags = set(re.findall(r"newTag: ([^\s}]+)", (tree / KUSTOMIZATION).read_text()))
    if tags != {version}:
        raise Refused(f"the image tags in {KUSTOMIZATION} are not {version}. Make them equal.")
    changed = run("git", "status", "--porcelain", folder=tree)
    if changed:
        raise Refused(f"the tree differs from its commit. Commit or remove:\n{changed}")
    tagged = run("git", "tag", "--list", f"v{version}", folder=tree)
    if tagged and f"v{version}" not in run("git", "tag", "--points-at", "HEAD", folder=tree).split():
        raise Refused(f"v{version} is the tag of another commit. Raise the version in pyproject.toml and CHANGELOG.md.")
    if not (tree / JAR).is_file():
        raise Refused(f"{JAR} is missing. Install a JDK (Java 17 or newer) and run make setup.")
    return version


def build(tree: Path, version: str) -> list[Path]:
    """Fill dist/ with the sdist, both wheels, the SBOMs and the checksums; what it held is removed."""
    target = tree / "dist"
    shutil.rmtree(target, ignore_errors=True)
    time = run("git", "log", "-1", "--format=%ct", folder=tree)
    hatchling("sdist", source=tree, target=target, time=time)
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        work = Path(name)
        with tarfile.open(target / f"txn_ingestor-{version}.tar.gz") as archive:
            archive.extractall(work, filter="data")
        source = work / f"txn_ingestor-{version}"
        (source / JAR).parent.mkdir(exist_ok=True)
        shutil.copy2(tree / JAR, source / JAR)
        hatchling("wheel", source=source, target=work / "native", time=time)
        hatchling("wheel", source=source, target=target, time=time, native=False)
        (wheel,) = (work / "native").iterdir()
        if wheel.name.endswith("-any.whl"):
            raise Refused("the native intake was not built. Install a C compiler (cc).")
        if sys.platform == "linux":
            run(BIN / "auditwheel", "repair", "--wheel-dir", target, wheel, folder=work, time=time)
        else:
            shutil.copy2(wheel, target)
    for lock, ending in SBOMS.items():
        sbom = target / f"txn_ingestor-{version}{ending}.cdx.json"
        described = ("--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON", "-o", sbom)
        run(BIN / "cyclonedx-py", "requirements", f"requirements/{lock}.txt", *described, folder=tree)
    files = sorted(target.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (target / "SHA256SUMS").write_text(sums)
    return [*files, target / "SHA256SUMS"]


def hatchling(kind: str, *, source: Path, target: Path, time: str, native: bool = True) -> None:
    """Build a sdist or a wheel."""
    build_it = (sys.executable, "-P", "-m", "hatchling", "build")
    run(*build_it, "--target", kind, "--directory", target, folder=source, time=time, native=native)


def run(*command: str | Path, folder: Path, time: str = "", native: bool = True) -> str:
    """Return what a program prints, or refuse with what it said."""
    # auditwheel finds patchelf on PATH. The time of the commit is that of all files in archives.
    environ = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "INGESTOR_NATIVE": "on" if native else "off",
    }
    environ |= {"SOURCE_DATE_EPOCH": time} if time else {}
    words = [str(word) for word in command]
    done = subprocess.run(  # noqa: S603 - the tools of a release
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX
    )
    if done.returncode:
        raise Refused(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
