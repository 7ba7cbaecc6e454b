import tempfile
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.run.home import home, new_run_id, runs_dir
from tests.support.processes import run_python


def test_home_is_created_at_the_path_of_the_variable(tmp_path: Path) -> None:
    environ = {"ELASTICQA_HOME": str(tmp_path / "a" / "b")}
    assert home(environ) == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    assert runs_dir(environ) == tmp_path / "a" / "b" / "runs"


def test_home_that_cannot_be_created_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/home cannot be created .*set ELASTICQA_HOME") as caught:
        home({"ELASTICQA_HOME": str(tmp_path / "file" / "home")})
    assert "\n" not in str(caught.value)


def test_home_without_write_permission_is_refused() -> None:
    # Not under tmp_path, whose parents are closed to the user that root becomes here: root may write everywhere.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = run_python("-c", ASK_AS_NOBODY, folder)
    assert f"home directory {folder} is not writable" in done.stdout, done.stderr


ASK_AS_NOBODY = """
import os, sys
from elasticqa.run.home import home
from elasticqa.errors import ConfigError
os.getuid() or os.setuid(65534)
try:
    home({"ELASTICQA_HOME": sys.argv[1]})
except ConfigError as error:
    print(error)
"""


def test_new_run_ids_are_ulids_and_differ() -> None:
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(run_id) == 26 and run_id.isalnum() for run_id in ids)
