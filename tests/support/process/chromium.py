"""A headless Chromium, led over its DevTools pipe: no driver, no WebSocket, nothing to install but the browser.

with Chromium(folder) as browser:
    page = browser.open(url)
    page.wait_for("document.title === 'ready'")
    assert page.complaints == []
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from tests.support.process.child import ENDS_WITH_PARENT

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MAX = 30.0
_TICK_SECONDS = 0.05
_COMPLAINTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")

# Chromium reads commands from descriptor 3 and answers on 4.
_LAUNCH = f"""{ENDS_WITH_PARENT}
import fcntl
reading, writing = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root has none, and the page is ours
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--remote-debugging-pipe",
    "--lang=en",
)


def executable() -> str | None:
    """Return where Chromium is, None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class DevToolsError(Exception):
    """Chromium refuses a command."""


class Page:
    """One tab."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a DevTools command."""
        return self._browser.call(method, parameters, self._session)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, *, leaving: bool = False) -> None:
        """Return as soon as an expression is true; while the tab is `leaving` for another page, nobody may answer."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            with contextlib.suppress(*([DevToolsError] if leaving else [])):
                if self.run(expression):
                    return
            assert time.monotonic() < deadline, f"not within {SECONDS_MAX:g} s: {expression}; it shows\n{self.text}"
            time.sleep(_TICK_SECONDS)

    @property
    def text(self) -> str:
        """What a person reads."""
        return str(self.run("document.body.innerText"))

    @property
    def complaints(self) -> list[str]:
        """What went to the console as an error or a warning, or was thrown."""
        self.run("1")  # takes in what was said until now
        return [json.dumps(event) for event in self._browser.events.get(self._session, ()) if _complains(event)]

    def forgive(self) -> None:
        """Forget the complaints until now."""
        self._browser.events.pop(self._session, None)

    def close(self) -> None:
        """Close the tab."""
        self.call("Page.close")

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key])

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Give the tab the size of a screen."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path: Path) -> None:
        """Save what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


_KEYS = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}


def _complains(event: dict[str, Any]) -> bool:
    parameters = event["params"]
    if event["method"] == "Log.entryAdded":
        return parameters["entry"]["level"] in ("error", "warning")
    return event["method"] == "Runtime.exceptionThrown" or parameters.get("type") in ("error", "warning", "assert")


class Chromium:
    """One browser, which is over with the `with` block."""

    def __init__(self, folder: Path) -> None:
        program = executable()
        assert program is not None
        self.events: dict[str, list[dict[str, Any]]] = {}  # by session
        self._number = 0
        self._buffer = b""
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "XDG_CACHE_HOME": str(folder / "cache")}
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-ISc", _LAUNCH, str(theirs_in), str(theirs_out), program),
                *(*_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **home, "TZ": "UTC", "TMPDIR": str(folder)},
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def open(self, url: str) -> Page:
        """Return a new tab that shows an address."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        page = Page(self, self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=url)
        page.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'", leaving=True)
        return page

    def call(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Return the answer to a DevTools command; what happens meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise DevToolsError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("method") in _COMPLAINTS:
                self.events.setdefault(answer["sessionId"], []).append(answer)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium does not answer within {SECONDS_MAX:g} s"
            more = os.read(self._in, 1 << 16)
            assert more, f"Chromium ended: {self._process.poll()}"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
