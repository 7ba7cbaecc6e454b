"""docker/healthcheck.py: only status 200 is healthy."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.paths import REPOSITORY


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Yield the port of a server that answers one status at /healthz and 404 elsewhere."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def check(port: int) -> subprocess.CompletedProcess[str]:
    # With a proxy that does not exist, which the check must not use.
    environ = {**os.environ, "UVICORN_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    program = [sys.executable, str(REPOSITORY / "docker" / "healthcheck.py")]
    return subprocess.run(program, env=environ, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (404, 1)])
def test_healthcheck_follows_the_status(status: int, expected: int) -> None:
    with answering(status) as port:
        done = check(port)
    assert done.returncode == expected
    assert str(status) in done.stdout


def test_healthcheck_without_a_server_fails_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        done = check(taken.getsockname()[1])
    assert done.returncode == 1
    assert done.stderr.startswith("no answer: ConnectionRefusedError")
    assert done.stderr.count("\n") == 1
