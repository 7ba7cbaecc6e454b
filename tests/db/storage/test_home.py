"""The home directory, and a database on a local file system."""

from pathlib import Path

import platformdirs
import pytest

from db.storage.home import database_url, file_system_of, home_of

MOUNTS = "\n".join(
    [
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "30 22 0:40 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2",
        "31 22 0:41 / /scratch/my\\040data rw - lustre 10.0.0.1@tcp:/fs rw",
        "32 30 0:42 / /home/local rw - xfs /dev/vdb rw",
        "33 22 0:43 / /over rw - ext4 /dev/vdc rw",
        "34 33 0:44 / /over rw - nfs server:/over rw",
        "damaged line",
    ]
)


def test_home_defaults_to_the_users_data_directory() -> None:
    assert home_of({}) == Path(platformdirs.user_data_dir("elasticqa"))
    assert home_of({"ELASTICQA_HOME": ""}) == home_of({})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/x", "ext4"),
        ("/home/ann/.local", "nfs4"),
        ("/homes", "ext4"),
        ("/home/local/x", "xfs"),
        ("/scratch/my data/runs", "lustre"),
        ("/over/x", "nfs"),
    ],
)
def test_file_system_is_that_of_the_deepest_mount(path: str, expected: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == expected


def test_file_system_without_mounts_is_unknown() -> None:
    assert file_system_of(Path("/x"), "") == ""


def test_database_is_in_a_local_home() -> None:
    assert database_url({"ELASTICQA_HOME": "/var/qa"}, MOUNTS) == "sqlite:////var/qa/elasticqa.db"


def test_database_url_of_the_environment_wins() -> None:
    url = "postgresql+psycopg://db/qa"
    assert database_url({"ELASTICQA_HOME": "/home/x", "ELASTICQA_DB_URL": url}, MOUNTS) == url


def test_database_of_a_shared_home_is_on_a_local_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/ann")
    first = database_url({"ELASTICQA_HOME": "/home/x"}, MOUNTS)
    second = database_url({"ELASTICQA_HOME": "/home/y"}, MOUNTS)
    assert first.startswith("sqlite:////var/cache/ann/elasticqa/elasticqa-")
    assert first != second


def test_database_avoids_a_shared_cache_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/ann/.cache")
    url = database_url({"ELASTICQA_HOME": "/home/x"}, MOUNTS)
    assert file_system_of(Path(url.removeprefix("sqlite:///")), MOUNTS) == "ext4"


def test_database_url_reads_the_mounts_of_this_machine(tmp_path: Path) -> None:
    assert database_url({"ELASTICQA_HOME": str(tmp_path)}).startswith("sqlite:////")
