"""Reads Dockerfiles as far as ours go: stages, and their instructions with continuation lines joined."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Stage:
    """What stands between two FROM."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, keyword: str) -> list[str]:
        """Return the arguments of every instruction of a kind."""
        return [arguments for found, arguments in self.instructions if found == keyword]

    def exec_form(self, keyword: str) -> list[str]:
        """Return the last instruction of a kind as the list that it is."""
        text = self.all(keyword)[-1]
        words: list[str] = json.loads(text[text.index("[") :])
        return words

    def environ(self) -> dict[str, str]:
        """Return what is set for every program in the image."""
        return dict(setting.split("=", 1) for text in self.all("ENV") for setting in text.split())

    def copies(self) -> list[tuple[list[str], str]]:
        """Return what is copied from the folder of the build: sources and target."""
        found = [line.split() for line in self.all("COPY") if not line.startswith("--from")]
        return [(words[:-1], words[-1]) for words in found]


def read(path: Path) -> list[Stage]:
    """Return a Dockerfile's stages, with the defaults of its ARGs put in."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    values: dict[str, str] = {}
    stages: list[Stage] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        keyword, _, arguments = line.strip().partition(" ")
        if keyword == "ARG" and not stages:
            name, _, values[name] = arguments.partition("=")
        elif keyword == "FROM":
            base, _, name = arguments.partition(" AS ")
            stages.append(Stage(re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], base), name))
        elif keyword:
            stages[-1].instructions.append((keyword, arguments.strip()))
    return stages
