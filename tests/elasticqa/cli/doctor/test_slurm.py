"""The Slurm check with fake commands on PATH."""

from pathlib import Path

import pytest

from elasticqa.cli.doctor.slurm import check, check_partitions, is_configured

ANSWERS = {
    "sbatch": "echo slurm-wlm 22.05.8",
    "sinfo": "echo 'main*|up'; echo 'main*|up'; echo 'old|down'",
    "squeue": "exit 0",
    "scancel": "exit 0",
    "scontrol": "exit 0",
}


def cluster(folder: Path, **changes: str | None) -> dict[str, str]:
    """Write the commands, as changed (None: not there), and return the environment that finds them."""
    for name, answer in {**ANSWERS, **changes}.items():
        if answer is not None:
            (folder / name).write_text(f"#!/bin/sh\n{answer}\n")
            (folder / name).chmod(0o755)
    return {"PATH": str(folder), "SLURM_CONF": str(folder / "slurm.conf")}


def test_machine_without_slurm_is_ok(tmp_path: Path) -> None:
    (finding,) = check({"PATH": str(tmp_path)})
    assert finding.status == "ok"
    assert "local_cwd" in finding.found


def test_working_cluster_is_ok(tmp_path: Path) -> None:
    (finding,) = check(cluster(tmp_path))
    assert finding.found == "slurm-wlm 22.05.8, partitions: main*"
    assert finding.status == "ok"


def test_cluster_is_configured_by_variable_or_file(tmp_path: Path) -> None:
    environ = cluster(tmp_path)
    del environ["SLURM_CONF"]
    assert not is_configured(environ, [tmp_path / "absent.conf"])
    (tmp_path / "slurm.conf").write_text("")
    assert is_configured(environ, [tmp_path / "slurm.conf"])
    assert not is_configured({"PATH": "", "SLURM_CONF": "x"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scontrol": None}, "not scontrol"),
        (
            {"sinfo": "echo 'Unable to contact slurm controller' >&2; exit 1"},
            "Unable to contact",
        ),
        ({"sinfo": "exit 3"}, "sinfo: exit status 3"),
    ],
)
def test_missing_command_and_silent_controller_fail(
    changes: dict[str, str | None], expected: str, tmp_path: Path
) -> None:
    (finding,) = check(cluster(tmp_path, **changes))
    assert finding.status == "fail"
    assert expected in finding.found


def test_command_that_cannot_be_run_fails(tmp_path: Path) -> None:
    environ = cluster(tmp_path)
    (tmp_path / "sinfo").write_text("#!/no/such/interpreter\n")
    (finding,) = check(environ)
    assert finding.status == "fail"
    assert "sinfo cannot be run" in finding.found


@pytest.mark.parametrize(
    ("names", "status", "expected"),
    [
        (["urgent", "main*"], "ok", "urgent, main*"),
        (["main", "urgent"], "warn", "none is the default"),
        ([], "fail", "no partition is up"),
    ],
)
def test_partitions_must_be_usable_without_naming_one(names: list[str], status: str, expected: str) -> None:
    finding = check_partitions("slurm 24.05", names)
    assert finding.status == status
    assert expected in finding.found
