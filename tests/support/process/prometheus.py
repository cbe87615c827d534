"""A real Prometheus over real processes, with the shipped alerts in shorter time.

    with Prometheus(ALERTS, times=20) as prometheus:
        prometheus.watch(one="127.0.0.1:8080")
        prometheus.firing()

Every duration and every threshold in seconds of the rules is a twentieth; so an alert that fires here after 10 s fires
after 200 s as shipped.
"""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import yaml

from tests.support.process.server import Home, Server, free_ports
from tests.support.tools import prometheus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DURATION = re.compile(r"\b(\d+)(s|m|h)\b")
_SECONDS = re.compile(r"(?<![.\w])([1-9]\d{2,})\b(?![smh\]])")  # a threshold: numbers of three digits and more
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000}
_ANSWER_SECONDS = 10.0


class Alert(NamedTuple):
    """An alert that fires."""

    name: str
    where: str  # the instance and the route, as far as it is of one


def shortened(rules: str, times: int) -> str:
    """Return rules in which everything takes so many times less."""
    document = yaml.safe_load(rules)
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _shorter(_SECONDS.sub(lambda found: str(int(found[1]) / times), rule["expr"]), times)
            if "for" in rule:
                rule["for"] = _shorter(rule["for"], times)
    return yaml.safe_dump(document, sort_keys=False)


def _shorter(text: str, times: int) -> str:
    return _DURATION.sub(lambda found: f"{int(found[1]) * _UNITS[found[2]] // times}ms", text)


class Prometheus(Server):
    """One server that scrapes every second."""

    def __init__(self, rules: Path, *, times: int) -> None:
        self._program = prometheus.executable()
        self._home = Home("prometheus")
        super().__init__(self._home.path)
        (self._port,) = free_ports(1)
        self._targets = self._folder / "targets.json"
        self._targets.write_text("[]")
        (self._folder / "alerts.yml").write_text(shortened(rules.read_text(), times))
        found = {"files": [str(self._targets)], "refresh_interval": "1s"}
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "ingestor", "file_sd_configs": [found]}],
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def _command(self) -> Sequence[str | Path]:
        data = f"--storage.tsdb.path={self._folder / 'data'}"
        address = f"--web.listen-address=127.0.0.1:{self._port}"
        return [self._program, f"--config.file={self._folder / 'prometheus.yml'}", data, address, "--log.level=warn"]

    def _answers(self) -> bool:
        try:
            self._ask("/-/ready")
        except OSError:
            return False
        return True

    def _ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=_ANSWER_SECONDS) as answer:
            text: str = answer.read().decode()
            return text

    def watch(self, **addresses: str) -> None:
        """Scrape exactly these, by the name of the instance."""
        targets = [{"targets": [address], "labels": {"instance": name}} for name, address in addresses.items()]
        aside = self._targets.with_suffix(".new")
        aside.write_text(json.dumps(targets))
        aside.replace(self._targets)

    def firing(self) -> set[Alert]:
        """Return what fires now."""
        found: list[dict[str, Any]] = json.loads(self._ask("/api/v1/alerts"))["data"]["alerts"]
        return {
            Alert(
                each["labels"]["alertname"],
                " ".join(each["labels"][key] for key in ("instance", "route") if key in each["labels"]),
            )
            for each in found
            if each["state"] == "firing"
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._home.remove()
