"""Commands in processes of their own, and waiting for what they do."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from tests.support.paths import REPOSITORY

T = TypeVar("T")
TIMEOUT_S = 300.0


class StuckError(AssertionError):
    """What had to happen did not happen within its limit."""


def until(condition: Callable[[], T | None], what: str | Callable[[], str], limit_s: float = TIMEOUT_S) -> T:
    """Return the first true value of ``condition``.

    Raises:
        StuckError: there was none within the limit; it says what was awaited.
    """
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise StuckError(f"{what if isinstance(what, str) else what()}: not within {limit_s:g} s")
        time.sleep(0.05)
    return value


def run(
    *command: str | Path,
    cwd: Path = REPOSITORY,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return the process with its output with any exit status."""
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


def run_python(
    *arguments: str | Path, cwd: Path = REPOSITORY, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter as ``run`` does."""
    return run(sys.executable, *arguments, cwd=cwd, env=env)


@contextmanager
def piped(
    *command: str | Path, stdin: int | None = None, stderr: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a command; yield its process and its standard output, and wait for its end."""
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout
