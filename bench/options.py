"""Sizes of a benchmark: options on the command line, else from the environment, else the default."""

from __future__ import annotations

import argparse
import os

from bench.payloads import POOL


class Sizes:
    """A parser of whole numbers, each at least 1: `--records` is also `BENCH_RECORDS`."""

    def __init__(self, benchmark: str, about: str) -> None:
        self._parser = argparse.ArgumentParser(prog=f"python -m bench {benchmark}", description=about)

    def add(self, name: str, default: int, about: str) -> None:
        """Add a number."""
        self._add(name, str(default), about, _number)

    def add_pool(self) -> None:
        """Add how many distinct payloads there are; the programs that make them find it in the environment."""
        self._add("pool", "0", "distinct payloads that come again and again; 0: no payload comes twice", int)

    def add_list(self, name: str, default: str, about: str) -> None:
        """Add several numbers with commas between them."""
        self._add(name, default, about, lambda text: [_number(part) for part in text.split(",")])

    def _add(self, name: str, default: str, about: str, kind: object) -> None:
        variable = f"BENCH_{name.upper()}"
        told = f"{about} (default {default}; also {variable})"
        self._parser.add_argument(f"--{name}", type=kind, default=os.environ.get(variable, default), help=told)  # type: ignore[arg-type]

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Return the numbers by name; end with a usage message if they are none."""
        chosen = self._parser.parse_args(arguments)
        if "pool" in chosen:
            os.environ[POOL] = str(chosen.pool)
        return chosen


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
