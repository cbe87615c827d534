"""The environment of a child whose Java has little to do: it compiles quickly and collects garbage without threads."""

from __future__ import annotations

import os

from ingestor.commands.demo_spark import QUICK_JAVA


def quick_java() -> dict[str, str]:
    """Return our environment with it."""
    return {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA}
