"""A Prometheus from Debian's package, of which only the one program is taken: once, into the user's cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.tools import cache

_SECONDS_MAX = 300


class PrometheusUnavailableError(Exception):
    """There is no Prometheus on this machine; the message says what is missing."""


def executable() -> Path:
    """Return the program, fetched now if it never was. The file appears complete or not at all."""
    installed = shutil.which("prometheus")
    if installed:
        return Path(installed)
    target = cache.root() / "prometheus-debian" / "prometheus"
    if not target.exists():
        with cache.locked(cache.root() / "prometheus-debian.lock"):
            if not target.exists():
                _fetch(target)
    return target


def _fetch(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PrometheusUnavailableError("prometheus is taken from Debian's package, and there is no apt-get here")
    with tempfile.TemporaryDirectory(dir=cache.root(), prefix="fetch-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        _run(folder, "apt-get", "download", "-q", "prometheus")
        (package,) = folder.glob("prometheus_*.deb")
        _run(folder, "dpkg-deb", "--extract", str(package), ".")
        target.parent.mkdir(exist_ok=True)
        (folder / "usr" / "bin" / "prometheus").rename(target)


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise PrometheusUnavailableError(f"Debian's package prometheus can't be had; {command[0]} says:\n{tail}")
