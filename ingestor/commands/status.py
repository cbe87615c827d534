"""`ingestor status`: a running process on one screen, as its `/api/status` tells."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from http.client import HTTPException, InvalidURL
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ingestor.errors import ConfigError, IngestorError
from ingestor.masking import without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingestor.config.settings import HttpSettings

_UNKNOWN = "-"
_PATH = "/api/status"
_PATIENCE_SECONDS = 5.0
_ANSWER_BYTES_MAX = 64 << 20
_EVERY_SECONDS = 2.0
_ERRORS_SHOWN = 3
_OTHER_LINES = 10  # of the screen, beside routes and errors
_PIPE_WIDTH = 200  # where the output is no terminal
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is looked for, not opened
_BY_TROUBLE = ("stopped", "paused", "waiting", "starting", "running")
_STYLES = {"running": "green", "stopped": "bold red"}


def address(http: HttpSettings | None) -> str:
    """Return the URL at which a process with these settings answers from here."""
    hint = "give the URL that its log shows (`http server listens`): ingestor status http://HOST:PORT"
    if http is None:
        raise ConfigError("http is null, so the process does not answer", hint="set http, and start it again")
    if http.port == 0:
        raise ConfigError("http.port is 0, so the process chose a port itself", hint=hint)
    host = _ANY_ADDRESS.get(http.host, http.host)
    return f"http://[{host}]:{http.port}" if ":" in host else f"http://{host}:{http.port}"


def status(
    url: str,
    *,
    watch: bool = False,
    as_json: bool = False,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show how the process at a URL is; without `watch` raise IngestorError if it is not well."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    if watch:
        _watch(url, console, sleep, as_json=as_json)
        return
    found = ask(url)
    _show(found, console, as_json=as_json)
    if not found["ready"] or not found["live"]:
        if "app_id" not in found:
            raise IngestorError(found["reasons"][0], hint="start it, or give its configuration or address")
        why = "; ".join(found["reasons"]) or "its loop does not move"
        raise IngestorError(f"{found['app_id']} is not well: {why}", hint="see its log and docs/operations.md")


def _watch(url: str, console: Console, sleep: Callable[[float], None], *, as_json: bool) -> None:
    """Show it again and again; a process that does not answer may come back."""
    try:
        if as_json or not console.is_terminal:
            while True:
                _show(ask(url), console, as_json=as_json)
                sleep(_EVERY_SECONDS)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen(ask(url), lines=console.height), refresh=True)
                sleep(_EVERY_SECONDS)
    except KeyboardInterrupt:
        pass


def _show(found: dict[str, Any], console: Console, *, as_json: bool) -> None:
    if as_json:
        console.file.write(f"{json.dumps(found)}\n")
        console.file.flush()
    else:
        console.print(screen(found, lines=None))


def ask(url: str) -> dict[str, Any]:
    """Return what a process says of itself; of one that does not answer, that it is neither live nor ready, and why."""
    try:
        return _asked(url.rstrip("/").removesuffix(_PATH) + _PATH)
    except urllib.error.HTTPError as error:
        why = f"answers {error.code}, which is not an ingestor's answer"
    except InvalidURL:  # whose text may quote a password
        why = "is not the address of a server"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = f"does not answer: {getattr(reason, 'strerror', None) or reason}"
    except (ValueError, TypeError):
        why = "answers, but it is no ingestor"
    return {"live": False, "ready": False, "reasons": [f"{without_credentials(url)} {why}"], "routes": {}}


def _asked(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as probes do, past any proxy
    with opener.open(url, timeout=_PATIENCE_SECONDS) as answer:
        found = json.loads(answer.read(_ANSWER_BYTES_MAX))
    if not isinstance(found, dict) or not {"live", "ready", "reasons", "routes"} <= found.keys():
        raise ValueError(url)
    return found


def screen(found: dict[str, Any], *, lines: int | None) -> Group:
    """Return what is shown of an answer; with `lines` only as many routes as fit, those in trouble first."""
    errors = found.get("errors", [])[:_ERRORS_SHOWN]
    parts: list[Text | Table] = [_head(found)]
    parts += [_text(f"  {reason}", "red") for reason in found["reasons"][:_OTHER_LINES]]
    if found["routes"]:
        fit = len(found["routes"]) if lines is None else max(1, lines - len(parts) - len(errors) - _OTHER_LINES)
        parts += [Text(), _routes(found, fit)]
        if len(found["routes"]) > fit:
            parts.append(_text(f"… and {len(found['routes']) - fit:,} more", "dim"))
    if errors:
        parts += [Text(), _text("Last errors", "bold"), _errors(found, errors, one_line=lines is not None)]
    return Group(*parts)


def _head(found: dict[str, Any]) -> Text:
    well = found["live"] and found["ready"]
    state = "ready" if well else "NOT READY" if found["live"] else "NOT LIVE"
    head = Text().append_text(_text(state, "bold green" if well else "bold red"))
    if "app_id" not in found:
        return head
    speeds = found.get("history", {}).get("records_per_second") or [None]
    memory = found.get("memory", {})
    facts = [
        f"{found['app_id']} {found['version']}",
        f"up {_span(found['now'] - found['started_at'])}",
        f"{_number(speeds[-1])} records/s read",
        f"lag {_number(_sum(_lag(route) for route in found['routes'].values()))}",
        f"memory {memory.get('used_bytes', 0) >> 20:,} of {memory.get('limit_bytes', 0) >> 20:,} MiB",
    ]
    return head.append_text(_text(f" · {' · '.join(facts)}"))


def _routes(found: dict[str, Any], fit: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in (("ROUTE", "left"), ("STATE", "left"), ("LAG", "right"), ("ROWS/S", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # one of rich's words
    table.add_column("LAST COMMIT", no_wrap=True)
    table.add_column("TABLE", overflow="ellipsis")  # it alone gives way where the screen is narrow
    for name in sorted(found["routes"], key=lambda name: _trouble(name, found["routes"][name]))[:fit]:
        route = found["routes"][name]
        commits = [commit for commit in found.get("commits", []) if commit["route"] == name]
        last = f"{_span(found['now'] - commits[0]['at'])} ago, version {commits[0]['version']}" if commits else _UNKNOWN
        state = _text(route["state"], _STYLES.get(route["state"], "yellow"))
        cells = (_number(_lag(route)), _number(_rate(commits, found["now"])), last, route["table"])
        table.add_row(_text(name), state, *map(_text, cells))
    return table


def _errors(found: dict[str, Any], errors: list[dict[str, Any]], *, one_line: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=one_line, overflow="ellipsis")
    for error in errors:
        times = f" ({error['count']} times)" if error["count"] > 1 else ""
        when = f"  {_span(found['now'] - error['at'])} ago"
        table.add_row(*map(_text, (when, error["route"] or "", f"{error['what']}{times} — {error['hint']}")))
    return table


def _trouble(name: str, route: dict[str, Any]) -> tuple[int, int, str]:
    state = route["state"]
    return _BY_TROUBLE.index(state) if state in _BY_TROUBLE else 0, -(_lag(route) or 0), name


def _lag(route: dict[str, Any]) -> int | None:
    return _sum(partition["lag"] for partition in route["partitions"])


def _sum(numbers: Any) -> int | None:  # noqa: ANN401 - any iterable of numbers and None
    """Return the sum of what is known; None if nothing is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _rate(commits: list[dict[str, Any]], now: float) -> float | None:
    """Return rows per second over the last commits, the newest first; with one commit there is no span to go by."""
    if len(commits) < 2 or now <= commits[-1]["at"]:  # noqa: PLR2004 - a span has two ends
        return None
    return float(sum(commit["rows"] for commit in commits[:-1]) / (now - commits[-1]["at"]))


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def _text(words: str, style: str = "") -> Text:
    """Return text without control characters, which could write anywhere on the screen."""
    return Text("".join(char if char.isprintable() else " " for char in words), style)
