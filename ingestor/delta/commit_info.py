"""The commitInfo of our log entries: what each says of itself, and by what a torn one is told from a whole one.

commitInfo is an entry's first line. A power cut takes lines from the end, so what the first line promises is missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTIONS = "actions"  # how many actions the entry has
_TXNS = "txns"  # how many of them are txns


def commit_info(app_id: str, route: str, commit_id: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry of ours says, but for how many actions it has."""
    return {**said, "app_id": app_id, "route": route, "commit_id": commit_id}


def counted(info: Mapping[str, Any], others: int) -> dict[str, Any]:
    """Return a commitInfo with how many actions the entry has: itself and others."""
    return {**info, _ACTIONS: 1 + others}


def with_txns_counted(info: Mapping[str, Any], txns: int) -> dict[str, Any]:
    """Return the commitInfo of a MERGE, of which only delta-rs knows the files: so many txns are its last lines."""
    return {**info, _TXNS: txns}


def is_ours(info: Mapping[str, Any]) -> bool:
    """Tell whether an ingestor wrote a commitInfo."""
    return "commit_id" in info or _ACTIONS in info


def missing(info: Mapping[str, Any], *, actions: int, txns: int) -> str | None:
    """Return what an entry of so many actions lacks of what it promises; None for one that promises nothing."""
    for what, key, found in (("actions", _ACTIONS, actions), ("txns", _TXNS, txns)):
        told = info.get(key)
        if type(told) is int and found < told:
            return f"it has {found} of its {told} {what}"
    return None
