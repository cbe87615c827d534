"""SIGTERM, SIGINT and SIGHUP end the process in order; a second SIGTERM or SIGINT ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_STDERR = 2
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STEP_SECONDS = 0.2  # how late a wait may notice that a signal came


class Stop:
    """Whether a signal has asked the process to end; everybody looks here, from whatever thread.

    Nothing but a flag is set by the handler. It runs on the main thread in the midst of whatever that does: an event
    or a lock that the thread holds just then would never be let go, and a stream that it writes to can't be entered
    twice.
    """

    def __init__(self, last_words: str) -> None:
        """Take the line to write to stderr when a second signal ends the process."""
        self._last_words = f"{last_words}\n".encode()
        self._asked = False
        self._told = False  # by SIGTERM or SIGINT

    def listen(self) -> None:
        """Install the handlers; call again after starting a library that installs its own.

        SIGHUP comes when a terminal closes. `nohup` ignores it, and that is left as it is.
        """
        for number in _ENDS:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def asked(self) -> bool:
        """Return whether a signal has come."""
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Wait, but end soon after a signal; return whether one has come."""
        deadline = time.monotonic() + seconds
        while not self._asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _STEP_SECONDS))
        return self._asked

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # A closing terminal sends SIGHUP twice (shell and kernel), so a second one does not end the process.
        if number != signal.SIGHUP:
            if self._told:
                with contextlib.suppress(OSError):  # the reader of a pipe may be gone
                    os.write(_STDERR, self._last_words)
                os._exit(1)
            self._told = True
        self._asked = True
