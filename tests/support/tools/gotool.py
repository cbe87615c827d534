"""Builds a tool from a Go module, once into the user's cache; only Go is needed, and only once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import cache

_BUILD_SECONDS_MAX = 300


class ToolUnavailableError(Exception):
    """The tool can't be had on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class GoTool:
    """One program of a module."""

    name: str
    package: str
    version: str

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return cache.root() / f"{self.name}-{self.version}" / self.name

    def build(self) -> Path:
        """Return the tool, built now if it never was. The file appears complete or not at all."""
        if not self.path.exists():
            with cache.locked(self.path.parent.with_name(f"{self.path.parent.name}.lock")):
                if not self.path.exists():
                    self._build()
        return self.path

    def _build(self) -> None:
        go = shutil.which("go")
        if go is None:
            raise ToolUnavailableError(f"{self.name} is built with go, which is not in PATH")
        with tempfile.TemporaryDirectory(dir=cache.root(), prefix="build-") as folder:
            run = subprocess.run(
                [go, "install", "-ldflags=-s -w", f"{self.package}@{self.version}"],
                env={**os.environ, "GOBIN": folder},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_BUILD_SECONDS_MAX,
            )
            if run.returncode != 0:
                tail = "\n".join((run.stdout + run.stderr).splitlines()[-10:])
                raise ToolUnavailableError(f"{self.name} could not be built; is the network up? go says:\n{tail}")
            self.path.parent.mkdir(exist_ok=True)
            (Path(folder) / Path(self.package).name).rename(self.path)


# The reader of compose files that `docker compose config` has inside.
COMPOSE = GoTool("compose-spec", "github.com/compose-spec/compose-go/v2/cmd", "v2.16.2")
