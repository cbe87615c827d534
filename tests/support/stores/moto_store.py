"""moto's S3 as a process of its own: `python moto_store.py PORT [--ignore-if-none-match | --two-steps SECONDS]`.

moto checks `If-None-Match` and then writes, in one thread per request: two may win. Here writes come one at a time, so
one wins. The flags make stores that must not be used: conditions are ignored, or so much time lies between check and
write.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_WRITES = ("PUT", "POST", "DELETE")


class OneWriteAtATime:
    """Passes requests on; those that write wait for each other."""

    def __init__(self, application: WSGIApplication, *, conditional: bool) -> None:
        self._application = application
        self._conditional = conditional
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if not self._conditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if environ["REQUEST_METHOD"] not in _WRITES:
            return self._application(environ, start_response)
        # A client that is slow to send, or falls silent, must not hold the lock.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._lock:
            return list(self._application(environ, start_response))


class TwoSteps:
    """Looks whether an object is there that must not be, and writes it a moment later, whatever has come meanwhile."""

    def __init__(self, application: WSGIApplication, window_seconds: float) -> None:
        self._application = application
        self._window_seconds = window_seconds

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if environ.pop("HTTP_IF_NONE_MATCH", None) is None:
            return self._application(environ, start_response)
        if self._exists(environ):
            body = b"<Error><Code>PreconditionFailed</Code></Error>"
            start_response("412 Precondition Failed", [("Content-Length", str(len(body)))])
            return [body]
        time.sleep(self._window_seconds)
        return self._application(environ, start_response)

    def _exists(self, environ: WSGIEnvironment) -> bool:
        found: list[str] = []
        look = {**environ, "REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0", "wsgi.input": io.BytesIO()}
        list(self._application(look, lambda status, *_: found.append(status)))  # type: ignore[arg-type]
        return found[0].startswith("200")


def main() -> None:
    """Serve until killed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    application: WSGIApplication = OneWriteAtATime(moto, conditional="--ignore-if-none-match" not in sys.argv)
    if "--two-steps" in sys.argv:
        application = TwoSteps(moto, float(sys.argv[-1]))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)


if __name__ == "__main__":
    main()
