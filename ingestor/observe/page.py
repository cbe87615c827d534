"""The status page for people: one file that needs nothing else, and the policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_FILE = "status_page.html"


@dataclass(frozen=True, slots=True)
class Page:
    """What is sent, and its Content-Security-Policy: only the page's own script and style run, only we are asked."""

    body: bytes
    policy: str


@cache
def page() -> Page:
    """Return the page, read once."""
    body = files("ingestor.observe").joinpath(_FILE).read_bytes()
    policy = (
        f"default-src 'none'; script-src {_hash(body, b'script')}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(body, policy)


def _hash(body: bytes, tag: bytes) -> str:
    found = re.search(rb"<%b>(.*?)</%b>" % (tag, tag), body, re.DOTALL)
    if found is None:
        msg = f"{_FILE} has no <{tag.decode()}>"
        raise RuntimeError(msg)
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"
