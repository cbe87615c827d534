"""Checks the protocol's model: `make model`, and at a smaller size one of the tests.

TLC looks at every behaviour of bounded worlds: of the code as it is none may break an invariant, and everything must
land in the end; of each break it must find a behaviour that shows it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.support.judge.tlc import Checked, Counterexample, check, fetch_tlc

STUCK = ("FencedNotPlacedAgain", "ErrorMeansNotLanded")  # breaks that only time shows
_LAST_STEPS = 4


def main() -> int:
    """Check the large worlds, that everything lands in them, and every break; print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what the tests look at")
    options = parser.parse_args()
    fetch_tlc(say)
    started = time.monotonic()
    found: list[Counterexample] = []
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        for name, checked in runs(Path(folder), large=not options.quick):
            say(f"{name}: {checked.distinct:,} states, {checked.states:,} steps, {checked.seconds:.0f} s")
            found += checked.found
    for example in found:
        say(f"\n{shown(example)}")
    wrong = [example for example in found if example.broken in ("none", "")]
    say(f"\n{len(found) - len(wrong)} breaks found out in {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def runs(folder: Path, *, large: bool) -> list[tuple[str, Checked]]:
    """Run TLC on everything; the large worlds take minutes."""
    wanted = [("worlds and breaks", "Quick", ("-continue",)), ("everything lands in the end", "Live", ())]
    if large:
        wanted.insert(0, ("large worlds", "Large", ("-continue",)))
    wanted += [(f"break {name}", name, ()) for name in STUCK]
    done = []
    for name, config, flags in wanted:
        place = folder / config
        place.mkdir()
        done.append((name, check(place, "MC.tla", config, *flags, memory="3g", seconds_max=3600)))
    return done


def shown(example: Counterexample) -> str:
    """Return a counterexample in words: how long it is, and how it ends."""
    first = len(example.steps) - _LAST_STEPS
    lines = [f"{number:4}. {step}" for number, step in enumerate(example.steps, start=1) if number > first]
    return "\n".join([f"{example.broken}: breaks {example.violated} after {len(example.steps)} steps", *lines])


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
