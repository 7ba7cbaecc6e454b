"""A temporary PostgreSQL server on a Unix socket."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from db.engine import create_engine_for
from tests.support.processes import until

_NUMBERS = count(1)


def _program(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    if found is None:
        pytest.skip(f"no {name}: install Debian's package postgresql")
    return found


def _as_server() -> list[str]:
    """Return the prefix of commands that must not run as root, which the server refuses."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Yield the URL of a running server, without a database."""
    # Not in the directory of pytest, which other users cannot read.
    folder = Path(tempfile.mkdtemp(prefix="elasticqa-pg-"))
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
    data = folder / "data"
    initdb = [*_as_server(), _program("initdb"), "-D", str(data), "-U", "qa", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, cwd=folder)
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    process = subprocess.Popen(
        [*_as_server(), _program("postgres"), "-D", str(data), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    url = f"postgresql+psycopg://qa@/{{}}?host={folder}"
    try:
        _wait_for(url.format("postgres"), process)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        shutil.rmtree(folder)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    engine = create_engine(url)

    def is_ready() -> bool:
        assert process.poll() is None, "the server ended before it was ready"
        with contextlib.suppress(OperationalError):
            engine.connect().close()
            return True
        return False

    until(is_ready, "a server that is ready", 60)
    engine.dispose()


@pytest.fixture
def postgresql_url(server: str) -> str:
    """Return the URL of a new, empty database."""
    name = f"test{next(_NUMBERS)}"
    engine = create_engine(server.format("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.format(name)


@pytest.fixture
def postgresql(postgresql_url: str) -> Iterator[Engine]:
    """Yield an engine on a new, empty database."""
    engine = create_engine_for(postgresql_url)
    yield engine
    engine.dispose()
