"""A private Docker engine, base images built from Debian packages, and the services of docker-compose.yml."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.compose_stack import OWNER, PASSWORD, Stack, run
from tests.support.paths import REPOSITORY
from tests.support.processes import until
from tests.support.servers import free_port

# The build needs a package index, which the engine's own network cannot reach without packet filters.
_OVERRIDE = "services: {dashboard: {build: {network: host}}}\n"
_PROGRAMS = ("docker", "dockerd", "containerd", "runc", "iptables", "debootstrap")
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", ".dockerignore", "docker-compose.yml")
_SOURCE_FOLDERS = ("docker", "elasticqa", "components", "dashboard", "db")


@pytest.fixture(scope="module")
def engine_environ() -> Iterator[Mapping[str, str]]:
    """Yield the environment with which `docker` uses an engine that ends with the tests."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and Debian's packages docker.io, iptables and debootstrap; missing: {missing}")
    # Not in pytest's directory: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="elasticqa-docker-"))
    environ = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DOCKER_", "COMPOSE_", "ELASTICQA_"))
        },
        "DOCKER_HOST": f"unix://{folder / 'socket'}",
        "DOCKER_CONFIG": str(folder / "config"),
        "TMPDIR": str(folder),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                # Ends the engine with the tests, even if they are killed.
                *("setpriv", "--pdeathsig", "TERM"),
                "dockerd",
                f"--host={environ['DOCKER_HOST']}",
                f"--data-root={folder / 'data'}",
                f"--exec-root={folder / 'exec'}",
                f"--pidfile={folder / 'pid'}",
                "--storage-driver=overlay2",
                # Leaves the host's packet filters and routes unchanged.
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
                "--bridge=none",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(process, environ, folder / "log")
        yield environ
    finally:
        process.terminate()
        process.wait()
        # The engine leaves the host's network namespace mounted here.
        subprocess.run(["umount", folder / "exec" / "netns" / "default"], capture_output=True, check=False)
        # Faster than shutil.rmtree for the tens of thousands of files of the images.
        subprocess.run(["rm", "-rf", folder], check=True)


def _wait_for(process: subprocess.Popen[bytes], environ: Mapping[str, str], log: Path) -> None:
    def is_ready() -> bool:
        return subprocess.run(["docker", "info"], env=environ, capture_output=True, check=False).returncode == 0

    until(lambda: process.poll() is not None or is_ready(), "the engine is ready", 60)
    if process.poll() is not None:
        pytest.fail(f"the engine has ended with {process.poll()}:\n{log.read_text()[-5000:]}")


@pytest.fixture(scope="module")
def stack(engine_environ: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield the healthy services with an empty home directory."""
    plugins = Path(engine_environ["DOCKER_CONFIG"]) / "cli-plugins"
    run(["bash", "scripts/compose-base-images.sh", str(plugins)], engine_environ)
    folder, home = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("homes") / "a home"
    for name in _SOURCES:
        shutil.copy(REPOSITORY / name, folder)
    for name in _SOURCE_FOLDERS:
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "secrets"))
    (folder / "docker-compose.override.yml").write_text(_OVERRIDE, encoding="utf-8")
    password = folder / "docker" / "secrets" / "db-password"
    password.parent.mkdir()
    password.touch(mode=0o600)
    password.write_text(PASSWORD, encoding="ascii")
    owner = {"ELASTICQA_UID": str(OWNER), "ELASTICQA_GID": str(OWNER), "ELASTICQA_HOME": str(home)}
    run(["bash", "docker/prepare.sh"], {**engine_environ, **owner}, cwd=folder)
    port = free_port()
    environ = {**engine_environ, "ELASTICQA_DASHBOARD_PORT": str(port)}
    services = Stack(folder=folder, home=home, port=port, environ=environ)
    try:
        started = subprocess.run(
            ["docker", "compose", "up", "--build", "--wait"],
            env=environ,
            cwd=folder,
            text=True,
            capture_output=True,
            check=False,
        )
        if started.returncode != 0:
            logs = services.compose("logs", "--no-color").stdout
            pytest.fail(
                f"docker compose up: exit status {started.returncode}\n{started.stdout}\n{started.stderr}\n{logs}"
            )
        yield services
    finally:
        services.compose("down", "--volumes")
