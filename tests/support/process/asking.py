"""Questions to a running ingestor's HTTP server."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.support.process.ingestors import Ingestor

_SECONDS_MAX = 10.0


class Site:
    """The server of one process."""

    def __init__(self, ingestor: Ingestor) -> None:
        """Wait until the process has said where it listens."""
        self.url = str(ingestor.wait_for("http server listens")[-1]["url"])

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=_SECONDS_MAX)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """Return what `/api/status` says."""
        found: dict[str, Any] = json.loads(self.get("/api/status")[1])
        return found

    def scrape(self) -> dict[str, float]:
        """Return what `/metrics` says: values by name and labels, as Prometheus writes them."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {_series(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def _series(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


def total(scrape: dict[str, float], name: str, **labels: str) -> float:
    """Return the sum over the series of a name that have these labels."""
    wanted = [f"{key}={json.dumps(value)}" for key, value in labels.items()]
    return sum(
        value
        for series, value in scrape.items()
        if series.startswith(f"{name}{{") and all(label in series for label in wanted)
    )
