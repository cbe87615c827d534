"""Breaks the code on purpose, one small break at a time, and sees whether the tests notice: `make mutants`.

Each mutant names a function or a class, a piece of its text, and what that becomes, in a copy of the sources. The
quick tests that it names must fail then. One that nobody notices ends the run with exit code 1, and so does one whose
text is no longer there. The lists lie beside the tests: tests/unit/ROOM/mutants.py.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.mutant import NotFoundError, all_mutants

if TYPE_CHECKING:
    from tests.support.mutant import Mutant

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("ingestor", "spark_jobs", "tests", "docs", "requirements", "pyproject.toml")
AT_ONCE = 2
TIMEOUT_SECONDS = 600
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    caught_by: str  # "" if nobody noticed
    seconds: float
    trouble: str = ""


def main() -> int:
    """Run the mutants that were asked for and print who caught them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", dest="word", default="", help="only mutants whose name or file contains this")
    parser.add_argument("--all-tests", action="store_true", help="go on after the first test that notices")
    options = parser.parse_args()
    chosen = [each for each in all_mutants() if options.word in f"{each.file(ROOT).relative_to(ROOT)}: {each.name}"]
    if not chosen:
        parser.error(f"no mutant's name or file contains {options.word!r}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = Path(folder) / "base"
        copy_sources(ROOT, base)
        already = failing(base, sorted({test for mutant in chosen for test in mutant.tests}))
        if already:
            say(f"these fail without any change, and are left out: {', '.join(already)}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [pool.submit(judge, mutant, base, already, all_tests=options.all_tests) for mutant in chosen]
            verdicts = [show(job.result(), len(chosen), number) for number, job in enumerate(jobs, start=1)]
    survivors = [verdict for verdict in verdicts if not verdict.caught_by]
    say("")
    width = max((len(verdict.mutant.name) for verdict in verdicts), default=0)
    for verdict in verdicts:
        result = verdict.caught_by.replace("tests/", "") or verdict.trouble or "NOT CAUGHT"
        say(f"{verdict.mutant.at:30} {verdict.mutant.name:{width}}  {result}")
    seconds = time.monotonic() - started
    say(f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} mutants caught in {seconds:.0f} s")
    return 1 if survivors or already else 0


def judge(mutant: Mutant, base: Path, already: list[str], *, all_tests: bool) -> Verdict:
    """Break a copy and run the tests on it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=base.parent) as folder:
        copy = Path(folder) / "copy"
        copy_sources(base, copy)
        try:
            source = mutant.apply(copy)
        except NotFoundError as error:
            return Verdict(mutant, "", 0, str(error))
        if source.suffix == ".c":
            subprocess.run([sys.executable, source.with_name("build.py")], check=True, timeout=TIMEOUT_SECONDS)
        caught, trouble = "", ""
        for test in mutant.tests:
            result = run(copy, [test], "-x", *(f"--deselect={name}" for name in already))
            found = _FAILED.findall(result)
            caught += (", " if caught and found else "") + (found[0] if found else "")
            trouble = trouble or ("" if found or " passed" in result else result[-600:])
            if caught and not all_tests:
                break
    return Verdict(mutant, caught, time.monotonic() - started, trouble)


def failing(copy: Path, tests: list[str]) -> list[str]:
    """Return the tests that fail as the sources are."""
    say(f"running {len(tests)} test files on the sources as they are")
    result = run(copy, tests)
    if " passed" not in result:
        sys.exit(f"the tests can't even run:\n{result}")
    return sorted(set(_FAILED.findall(result)))


def run(copy: Path, tests: list[str], *arguments: str) -> str:
    """Return what pytest says; a run that never ends counts as a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "--no-header", "-p", "tests.support.unshrunk"]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=1", "-m", "not soak", "--timeout=30"]
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "mutants", "PYTHONPATH": str(copy), "COLUMNS": "500"}
    try:
        done = subprocess.run(
            [*command, *arguments, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"FAILED {tests[0]}::(never-ends)\n"
    return done.stdout + done.stderr


def copy_sources(source: Path, target: Path) -> None:
    """Copy what the tests need, compiled files too: most of them stay valid."""
    target.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)


def show(verdict: Verdict, total: int, number: int) -> Verdict:
    """Print one line as soon as a mutant is judged."""
    word = "caught" if verdict.caught_by else "BROKEN" if verdict.trouble else "NOT CAUGHT"
    say(f"[{number}/{total}] {word} in {verdict.seconds:.1f} s: {verdict.mutant.at}: {verdict.mutant.name}")
    return verdict


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
