"""One cluster per test session, and a home directory per test."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurm_lab import FLAGS, Lab, start, stop
from tests.support.training import trained


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    """Return the directory of a running two-node cluster; one at a time per machine, since its ports are fixed."""
    if os.getuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("a Slurm cluster in namespaces needs root and the packages that scripts/test.sh installs")
    directory = Path(tempfile.gettempdir()) / "elasticqa-slurm"
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            start(directory)
            yield directory
        finally:
            stop(directory)


@pytest.fixture
def lab(cluster: Path, tmp_path: Path) -> Lab:
    """Return the cluster with an empty home."""
    return Lab(cluster, tmp_path / "home")


@pytest.fixture(scope="session")
def flags(tiny_model: Path, tiny_squad: Path) -> list[str]:
    """Return the training options of a short run without dropout."""
    return [f"--model={tiny_model}", f"--dataset={tiny_squad}", *FLAGS]


@pytest.fixture(scope="session")
def reference(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of the same training in one process."""
    return trained(tmp_path_factory.mktemp("reference"), *flags)
