"""The services of docker-compose.yml, started by a test."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

OWNER = 10001
"""User and group of the home in these tests; no account has the number."""


PASSWORD = "co:lon back\\slash 'quote\" $dollar"
"""Every character that a pass file, a shell or a compose file could take for its own."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The services, started from a copy of the sources."""

    folder: Path
    home: Path
    port: int
    environ: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where this machine reaches the dashboard."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The token of the dashboard's login."""
        return (self.home / "dashboard-token").read_text(encoding="ascii").strip()

    def compose(self, *arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `docker compose`; another exit status than the one expected fails the test with all that was printed."""
        return run(["docker", "compose", *arguments], self.environ, cwd=self.folder, expected=expected)

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `docker`, which has to succeed."""
        return run(["docker", *arguments], self.environ)

    def inside(self, *command: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command in the dashboard's container."""
        return self.compose("exec", "-T", "dashboard", *command, expected=expected)


def run(
    command: list[str], environ: Mapping[str, str], cwd: Path = REPOSITORY, expected: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environ, cwd=cwd, text=True, capture_output=True, check=False)
    if done.returncode != expected:
        pytest.fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
