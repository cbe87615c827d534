"""Puts the native intake into a wheel: run by hatchling, for editable installs too."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeIntakeHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own configuration is of no use here
    """Builds the library where there is a C compiler; elsewhere the wheel is one for any platform, without it.

    `INGESTOR_NATIVE=off` in the environment asks for the wheel without it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the interface's
        """Build, and tag the wheel with what it was built for."""
        found = runpy.run_path(str(Path(__file__).with_name("build.py")))
        off = os.environ.get("INGESTOR_NATIVE") == "off"
        why = "INGESTOR_NATIVE is off" if off else found["build"]()
        if why:
            found["TARGET"].unlink(missing_ok=True)
            self.app.display_warning(f"ingestor: without the native library records cost more CPU: {why}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = found["platform_tag"]()
