"""Reads a configuration file and checks it as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ingestor.config import options, rules
from ingestor.config.file import read
from ingestor.config.problems import as_error, from_pydantic
from ingestor.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load(
    path: Path,
    environ: Mapping[str, str] | None = None,
    *,
    instead: Mapping[str, Mapping[str, object | None]] | None = None,
) -> Settings:
    """Read and check a configuration file; ConfigError names every problem.

    `instead` has by section the keys that the command line gives: they replace the file's, None replaces nothing.
    """
    environ = os.environ if environ is None else environ
    document = read(path, environ)
    for name, keys in (instead or {}).items():
        given = {key: value for key, value in keys.items() if value is not None}
        section = document.get(name) or {}
        if given and isinstance(section, dict):
            document[name] = {**section, **given}
    return check(document, path, environ)


def check(document: Mapping[str, object], path: Path, environ: Mapping[str, str]) -> Settings:
    """Check a configuration that was read already; relative paths are relative to the folder of `path`."""
    problems = list(options.problems(document, environ))
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(document, context={"folder": path.absolute().parent})
    except ValidationError as error:
        problems += from_pydantic(error.errors(include_url=False), Settings)
    if settings is not None:
        problems += rules.problems(settings)
    # Raised outside the handler: pydantic's error quotes secrets and must not become the context.
    if settings is None or problems:
        raise as_error(str(path), problems)
    return settings
