"""SQLite files in good and bad places, and a server that does not exist."""

from pathlib import Path

import pytest

from elasticqa.cli.doctor.database import check, check_database

NFS = "22 1 254:0 / / rw - nfs4 server:/ rw"


def test_database_in_a_local_home_locks_and_is_not_created(tmp_path: Path) -> None:
    (finding,) = check({"ELASTICQA_HOME": str(tmp_path)})
    assert finding.status == "ok"
    assert str(tmp_path / "elasticqa.db") in finding.found
    assert list(tmp_path.iterdir()) == []


def test_sqlite_on_a_shared_file_system_fails(tmp_path: Path) -> None:
    finding = check_database(f"sqlite:///{tmp_path / 'x.db'}", NFS)
    assert finding.status == "fail"
    assert "is on nfs4" in finding.found
    assert "ELASTICQA_DB_URL" in (finding.advice or "")


def test_sqlite_below_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = check_database(f"sqlite:///{tmp_path / 'file' / 'x.db'}", "")
    assert finding.status == "fail"
    assert "cannot be written" in finding.found


def test_sqlite_in_memory_answers() -> None:
    assert check_database("sqlite://", "").status == "ok"


@pytest.mark.parametrize(
    "url", ["postgresql://ann:geheim@127.0.0.1:1/qa", "postgresql+nodriver://ann:geheim@host/qa", "geheim"]
)
def test_unusable_server_fails_without_printing_the_password(url: str) -> None:
    finding = check_database(url, "")
    assert finding.status == "fail"
    assert "geheim" not in finding.found + (finding.advice or "")
