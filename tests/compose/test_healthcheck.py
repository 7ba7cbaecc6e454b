"""docker/healthcheck.py: only status 200 is healthy."""

import os
import socket
import subprocess

import pytest

from tests.support.processes import run_python
from tests.support.servers import serving


def check(port: int) -> subprocess.CompletedProcess[str]:
    # With a proxy that does not exist, which the check must not use.
    environ = {**os.environ, "UVICORN_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    return run_python("docker/healthcheck.py", env=environ)


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (404, 1)])
def test_healthcheck_follows_the_status(status: int, expected: int) -> None:
    with serving(lambda path: (status if path == "/healthz" else 404, b"", {})) as port:
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
