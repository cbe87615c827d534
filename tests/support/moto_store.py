"""moto's S3 as a process of its own: `python moto_store.py PORT [--ignore-if-none-match]`.

moto checks `If-None-Match` and then writes, in one thread per request: two may win. Here writes come one at a time, so
one wins. With the flag conditions are ignored, as by a store that must not be used.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
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


def main() -> None:
    """Serve until killed."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    application = OneWriteAtATime(moto, conditional="--ignore-if-none-match" not in sys.argv)
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)


if __name__ == "__main__":
    main()
