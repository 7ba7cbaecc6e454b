"""Nodes with only IPv6 addresses: they train together, and one continues when the other is lost."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.check import Run, check
from tests.chaos.drive import flags as chaos_flags
from tests.chaos.job import kill
from tests.chaos.schedule import Schedule
from tests.support import training
from tests.support.local_job import PATIENCE_S, Job

pytestmark = pytest.mark.slow

ADDRESSES = {"node1": "fd77::1", "node2": "fd77::2"}
NUM_STEPS = 160
"""Enough to lose a node in the middle."""
_BECOME_MACHINE = 'hostname "$1" && mount --bind "$2" /etc/hosts && echo ready && exec cat'
"""Runs until its input is closed, at the latest by the end of the test's process."""


def inside(machine: int, *namespaces: str) -> list[str]:
    """Return the command prefix that runs a command on a machine, in the current directory."""
    return ["nsenter", f"--target={machine}", *namespaces, "--wd=.", "--"]


def ip(machine: int, words: str) -> str:
    """Return the output of ``ip`` on a machine."""
    command = [*inside(machine, "--net"), "ip", *words.split()]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[int]]:
    """Return the processes that hold the namespaces of two connected machines."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        pytest.skip("machines in namespaces need root and the packages that scripts/test.sh installs")
    isolate = ["unshare", "--net", "--uts", "--mount"]
    tried = subprocess.run([*isolate, "test", "-e", "/proc/self/net/if_inet6"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(
            f"no namespaces with IPv6 on this machine: {tried.stderr.decode().strip() or 'the kernel has none'}"
        )
    hosts = tmp_path / "hosts"
    known = {"localhost": "::1", **ADDRESSES}
    hosts.write_text("".join(f"{address} {name}\n" for name, address in known.items()), encoding="ascii")
    with contextlib.ExitStack() as stack:
        pids = []
        for name in ADDRESSES:
            command = [*isolate, "sh", "-c", _BECOME_MACHINE, "sh", name, str(hosts)]
            holder = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            pids.append(holder.pid)
        ip(pids[0], f"link add eth0 type veth peer name eth0 netns {pids[1]}")
        for pid, address in zip(pids, ADDRESSES.values(), strict=True):
            ip(pid, "link set lo up")
            ip(pid, f"address add {address}/64 dev eth0 nodad")
            ip(pid, "link set eth0 up")
            assert "inet " not in ip(pid, "address show dev eth0")
        yield pids


@pytest.fixture(scope="module")
def flags(tiny_model: Path, tiny_squad: Path) -> list[str]:
    """Return flags with a low learning rate: at a high one, sums in another order make the losses diverge."""
    elastic = Schedule("ipv6", "1:2", 2, ())
    return [*chaos_flags(tiny_model, tiny_squad, elastic), f"--epochs={NUM_STEPS // 8}", "--learning-rate=1e-4"]


@pytest.fixture(scope="module")
def reference(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the same training in one process."""
    home = tmp_path_factory.mktemp("reference")
    done = training.train(home, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run.of(training.only_run(home), NUM_STEPS)


@pytest.mark.parametrize("first_host", ["node1", "fd77::1"])
def test_node_without_ipv4_continues_when_the_other_is_lost(
    first_host: str, machines: list[int], flags: list[str], reference: Run, tmp_path: Path
) -> None:
    enter = [inside(machine, "--net", "--uts", "--mount") for machine in machines]
    job = Job(tmp_path / "job", *flags, nnodes="1:2", inside=enter)
    job.environ["TORCHX_RANK0_HOST"] = first_host
    with job:
        lost = job.start()
        grown = job.until_world(2)
        job.until(lambda: job.lines(grown)["checkpoint"])
        kill(lost.pid, *(process.pid for process in psutil.Process(lost.pid).children(recursive=True)))
        assert job.nodes[0].wait(PATIENCE_S) == 0, job.output()
    run = check(job.home, job.directory, reference, is_elastic=True, scratch=tmp_path / "rebuilt")
    # A node that is ready long before the other starts alone.
    assert list(run.world_sizes.values())[grown - 1 :] == [2, 1]
    assert run.lineage[NUM_STEPS] == grown + 1
    assert grown in run.lineage.values()
