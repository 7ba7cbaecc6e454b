"""docker/prepare.sh: private files for the services, not owned by root and not overwritten."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.compose_stack import OWNER
from tests.support.paths import REPOSITORY
from tests.support.processes import run


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a folder with only the script."""
    folder = tmp_path / "sources"
    (folder / "docker").mkdir(parents=True)
    shutil.copy(REPOSITORY / "docker" / "prepare.sh", folder / "docker")
    return folder


def prepare(sources: Path, home: Path, uid: int) -> subprocess.CompletedProcess[str]:
    environ = {
        "PATH": os.environ["PATH"],
        "ELASTICQA_HOME": str(home),
        "ELASTICQA_UID": str(uid),
        "ELASTICQA_GID": str(uid),
    }
    return run("bash", sources / "docker" / "prepare.sh", env=environ)


def owner() -> int:
    """Return the user of these tests, or another one if that is root."""
    return os.geteuid() or OWNER


def test_prepare_creates_private_files_of_the_owner(sources: Path, tmp_path: Path) -> None:
    home = tmp_path / "a home"
    done = prepare(sources, home, owner())
    assert done.returncode == 0, done.stderr
    lines = (sources / ".env").read_text(encoding="utf-8").splitlines()
    assert lines == [f"ELASTICQA_UID={owner()}", f"ELASTICQA_GID={owner()}", f"ELASTICQA_HOME='{home}'"]
    password = sources / "docker" / "secrets" / "db-password"
    assert len(password.read_text(encoding="ascii")) == 48
    for path, mode in ((password, 0o600), (home, 0o700), (home / "runs", 0o700)):
        facts = path.stat()
        assert (stat.S_IMODE(facts.st_mode), facts.st_uid) == (mode, owner())


def test_prepare_again_overwrites_nothing(sources: Path, tmp_path: Path) -> None:
    prepare(sources, tmp_path / "home", owner())
    files = (sources / ".env", sources / "docker" / "secrets" / "db-password")
    before = [file.read_bytes() for file in files]
    done = prepare(sources, tmp_path / "elsewhere", owner())
    assert done.returncode == 0
    assert ".env exists and is left as it is" in done.stderr
    assert [file.read_bytes() for file in files] == before


def test_prepare_for_root_is_refused(sources: Path, tmp_path: Path) -> None:
    done = prepare(sources, tmp_path / "home", 0)
    assert done.returncode == 2
    assert "set ELASTICQA_UID and ELASTICQA_GID" in done.stderr
    assert not (sources / ".env").exists()
    assert not (tmp_path / "home").exists()
