"""Hides credentials in URLs, for every text that may be shown."""

from __future__ import annotations

import re

# `user:secret@` or `token@`, also with slashes in the secret. A port is no secret, and neither is Azure's container.
_USER_INFO = re.compile(
    r"\b(?!(?:abfss?|wasbs?|adl)://[^\s/@:]+@)(\w+://)(?:[^\s/'\"@:]*|[^\s/'\"@:]*:(?!\d+(?:/|\s|$))[^\s'\"@]*)@"
)


def without_credentials(text: str) -> str:
    """Return a text whose URLs have nothing before an @, except Azure's container."""
    return _USER_INFO.sub(r"\1…@", text)
