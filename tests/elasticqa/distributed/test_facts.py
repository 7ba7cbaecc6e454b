import json
import os
import subprocess
from pathlib import Path

import torch

from elasticqa.distributed.facts import git_facts, host_facts, scheduler_facts, software_facts


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_host_facts_describe_this_machine() -> None:
    facts = host_facts(node_rank=3, num_devices=2)
    assert (facts["node_rank"], facts["num_devices"]) == (3, 2)
    assert facts["device_type"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert facts["device_name"]
    assert facts["memory_bytes"] > 2**20
    assert 1 <= facts["num_cpus"] <= (os.cpu_count() or 1)
    assert (facts["driver"] is None) == (facts["device_type"] == "cpu")
    json.dumps(facts)


def test_software_facts_have_versions_or_none() -> None:
    facts = software_facts()
    assert facts["torch"] == torch.__version__
    assert facts["cuda"] == torch.version.cuda
    assert facts["transformers"]
    assert set(facts) >= {"python", "elasticqa", "tokenizers", "datasets"}
    json.dumps(facts)


def test_git_facts_have_commit_and_dirtiness(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert git_facts(tmp_path) is None, "no commit yet"
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    (tmp_path / "untracked").write_text("")
    clean = git_facts(tmp_path)
    assert clean is not None
    assert len(clean["commit"]) == 40
    assert clean["is_dirty"] is False
    (tmp_path / "a").write_text("2")
    assert git_facts(tmp_path) == {"commit": clean["commit"], "is_dirty": True}


def test_git_facts_are_none_without_a_repository(tmp_path: Path) -> None:
    assert git_facts(tmp_path) is None
    assert git_facts(tmp_path / "absent") is None


def test_scheduler_facts_come_from_slurm() -> None:
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_START_TIME": "1790000000",
        "SLURM_JOB_SUBMIT_TIME": "1789999900",
    }
    assert scheduler_facts(environ) == {
        "kind": "slurm",
        "job_id": "77",
        "partition": "gpu",
        "node_list": "n[1-2]",
        "submitted_at": 1789999900.0,
        "started_at": 1790000000.0,
    }


def test_node_that_joined_a_job_has_the_id_of_that_job() -> None:
    assert scheduler_facts({"SLURM_JOB_ID": "78", "TORCHX_JOINED_JOB": "77"})["job_id"] == "77"


def test_scheduler_facts_are_local_without_slurm() -> None:
    facts = scheduler_facts({"SLURM_JOB_START_TIME": "soon"})
    assert facts["kind"] == "local"
    assert facts["job_id"] is None
    assert facts["started_at"] is None
