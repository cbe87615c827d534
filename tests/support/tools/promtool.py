"""promtool, Prometheus' own checker of rules, where it is at hand."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECONDS_MAX = 60.0
HINT = "there is no promtool here (it is in Debian's package prometheus)"


def executable() -> str | None:
    """Return where promtool is, None if there is none."""
    return shutil.which("promtool")


def run(*arguments: str | Path) -> str:
    """Run promtool, which must find nothing to complain about; return what it says."""
    program = executable()
    assert program is not None
    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def firing(folder: Path, rules: Path, alert: str, scrapes: Sequence[Mapping[str, float]], *, minute: int) -> bool:
    """Tell whether an alert fires at a minute, if these values were scraped one a minute; by name of series."""
    names = sorted({name for scrape in scrapes for name in scrape})
    series = [{"series": name, "values": " ".join(str(scrape.get(name, "_")) for scrape in scrapes)} for name in names]
    quiet = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": [quiet]}],
    }
    path = folder / f"{alert}-{minute}.yml"
    path.write_text(yaml.safe_dump(document))
    program = executable()
    assert program is not None
    done = subprocess.run(
        [program, "test", "rules", path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    said = done.stdout + done.stderr
    assert ("FAILED" in said) == (done.returncode != 0), said
    assert done.returncode == 0 or f'alertname="{alert}"' in said, said
    return done.returncode != 0
