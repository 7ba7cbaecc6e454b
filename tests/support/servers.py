"""Small HTTP servers, and ports for servers that tests start in processes of their own."""

import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_FIRST, _LAST = 10_000, 19_999
"""Below the ports of connections and of jobs of other tests, so that the port stays free until the server starts."""


def free_port() -> int:
    """Return a port of the loopback interface on which no process listens."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.SystemRandom().randint(_FIRST, _LAST)))
            except OSError:
                continue
            return port


@contextmanager
def serving(answer: Callable[[str], tuple[int, bytes, Mapping[str, str]]]) -> Iterator[int]:
    """Yield the port of a server whose function returns status, body and headers of a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(self._head())

        def do_HEAD(self) -> None:
            self._head()

        def _head(self) -> bytes:
            status, body, headers = answer(self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            return body

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
