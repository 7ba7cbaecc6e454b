"""docker/entrypoint.sh: writes libpq's password file and executes the command."""

import os
import stat
import subprocess
from pathlib import Path

from tests.support.processes import run


def enter(environ: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return run("sh", "docker/entrypoint.sh", *command, env={"PATH": os.environ["PATH"]} | environ)


def test_entrypoint_writes_a_private_escaped_pass_file(tmp_path: Path) -> None:
    password, pass_file = tmp_path / "password", tmp_path / "pgpass"
    password.write_text("a:b\\c d'\n", encoding="ascii")
    environ = {"ELASTICQA_DB_PASSWORD_FILE": str(password), "PGPASSFILE": str(pass_file)}
    for _ in range(2):
        assert enter(environ, "sh", "-c", "exit 7").returncode == 7
    assert pass_file.read_text(encoding="ascii") == "*:*:*:*:a\\:b\\\\c d'\n"
    assert stat.S_IMODE(pass_file.stat().st_mode) == 0o600


def test_entrypoint_without_a_password_runs_the_command(tmp_path: Path) -> None:
    done = enter({"PGPASSFILE": str(tmp_path / "pgpass")}, "echo", "two words")
    assert done.stdout == "two words\n"
    assert not (tmp_path / "pgpass").exists()


def test_entrypoint_with_a_missing_password_gives_advice(tmp_path: Path) -> None:
    environ = {"ELASTICQA_DB_PASSWORD_FILE": str(tmp_path / "absent"), "PGPASSFILE": str(tmp_path / "pgpass")}
    done = enter(environ, "echo", "started")
    assert done.returncode == 2
    assert "ELASTICQA_UID must be the owner" in done.stderr
    assert done.stdout == ""
