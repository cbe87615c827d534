"""What the commands' options share, and the configuration that a command works with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingestor import logs

if TYPE_CHECKING:
    from ingestor.config.settings import Settings

Config = Annotated[Path, typer.Argument(help="The YAML configuration file.", show_default=False)]
OfRoute = Annotated[str | None, typer.Option("--route", help="Only this route.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def load(config: Path, **instead: dict[str, Any]) -> Settings:
    """Return the checked configuration, and log as it says; `instead` replaces keys of sections, None replaces none."""
    from ingestor.config import load as module  # noqa: PLC0415 - slow to import, and help needs none of it

    loaded = module.load(config, instead=instead)
    logs.configure(loaded.log.format, loaded.log.level)
    return loaded
