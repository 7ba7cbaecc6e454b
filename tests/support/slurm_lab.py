"""A real two-node Slurm cluster on this machine, and its commands for tests."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support import training
from tests.support.paths import REPOSITORY
from tests.support.processes import run, until

TIMEOUT_S = 200.0
HELD = "ELASTICQA_PEER_TIMEOUT_S=600"
"""Variable for a run whose workers a test stops with SIGSTOP, so that they do not count as lost."""
SCRIPT = Path(__file__).with_name("slurm_cluster.sh")


ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
)


@dataclass(frozen=True)
class Lab:
    """The cluster from the view of a user with one home directory."""

    directory: Path
    home: Path
    cwd: Path = REPOSITORY
    """Working directory of commands."""
    timeout_s: float | None = TIMEOUT_S
    """Time limit of a command; None for no limit but the test's own."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a shell on the login node."""
        return training.environment(self.home, SLURM_CONF=str(self.directory / "etc" / "slurm.conf"))

    def run(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on the login node; its exit status is not checked."""
        return run(*command, cwd=self.cwd, env={**self.environment, **variables}, timeout_s=self.timeout_s)

    def out(self, *command: str) -> str:
        """Return the output of a command, which must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def torchx(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run torchx."""
        return self.run(str(Path(sys.executable).with_name("torchx")), *arguments, **variables)

    def doctor(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run `elasticqa doctor --slurm --json`."""
        return self.run(sys.executable, "-m", "elasticqa.cli.main", "doctor", "--slurm", "--json", *options)

    def submit(self, *arguments: str) -> str:
        """Return the number of the job that ``torchx run -s slurm`` submits."""
        done = self.torchx("run", "-s", "slurm", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        match = re.fullmatch(r"slurm://torchx/([0-9]+)", done.stdout.strip())
        assert match is not None, done.stdout
        return match[1]

    @contextmanager
    def submit_and_wait(self, *arguments: str) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
        """Give the number of a job and the process of ``torchx run --wait`` that submitted it."""
        command = [str(Path(sys.executable).with_name("torchx")), "run", "--wait", "-s", "slurm", *arguments]
        with subprocess.Popen(
            command, cwd=self.cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip().removeprefix("slurm://torchx/"), process
            finally:
                process.kill()

    def status(self, job: str) -> str:
        """Return the state that ``torchx status`` prints."""
        done = self.torchx("status", f"slurm://torchx/{job}")
        assert done.returncode == 0, done.stderr
        match = re.search(r"State: (\w+)", done.stdout)
        assert match is not None, done.stdout
        return match[1]

    def state(self, job: str) -> str:
        """Return Slurm's own state."""
        return self.out("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def joiners(self, job: str) -> list[str]:
        """Return the numbers of the jobs that add nodes to this one, pending or running."""
        return self.out("squeue", "--noheader", f"--name=ddp-joins-{job}", "--format=%i").split()

    def wait(self, job: str, state: str = "COMPLETED") -> None:
        """Wait for the end of a job and assert its state."""
        ended = until(lambda: self.state(job) in ENDED and self.state(job), f"the end of job {job}")
        assert ended == state, f"{ended}\n{self.logs(job)}"

    def power(self, node: str, *, on: bool) -> None:
        """Power a node off, or on again until Slurm uses it."""
        _cluster(self.directory, "start-node" if on else "kill-node", node)
        if on:
            until(
                lambda: node in self.out("sinfo", "--noheader", "--Node", "--states=idle,mixed,alloc", "--format=%N"),
                node,
            )

    def on_node(self, node: str, *command: str) -> None:
        """Run a command on a node, outside of Slurm."""
        _cluster(self.directory, "exec", node, *command)

    def start(self, job: str, when: str = "now+5") -> None:
        """Start a requeued job, for which Slurm would wait two minutes.

        With a delay: within a second of the requeue the nodes refuse the job ("Job credential revoked").
        """
        until(lambda: self.state(job) == "PENDING", f"job {job} waits again")
        until(
            lambda: self.run("scontrol", "update", f"JobId={job}", f"StartTime={when}").returncode == 0,
            f"job {job} starts",
        )

    def logs(self, job: str) -> str:
        """Return all logs of a job."""
        paths = sorted((self.home / "slurm").glob(f"{job}-*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in paths)

    def hold(self, job: str, num_workers: int) -> None:
        """Suspend the workers of a job, so that the run does not end first; its agents wake them to stop."""
        workers = self.workers(job)
        assert len(workers) == num_workers
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)

    def workers(self, job: str) -> list[psutil.Process]:
        """Return the training processes of a job, whose nodes are namespaces of this machine."""
        found = []
        for process in psutil.process_iter():
            try:
                is_trainer = "elasticqa.training.main" in process.cmdline() and "-u" in process.cmdline()
                if is_trainer and process.environ().get("SLURM_JOB_ID") == job:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return found


def start(directory: Path) -> None:
    """Start the cluster, after removing the remains of an earlier, killed test."""
    _cluster(directory, "up")


def stop(directory: Path) -> None:
    """Stop the cluster."""
    _cluster(directory, "down")


def _cluster(directory: Path, *command: str) -> None:
    done = subprocess.run(
        [SCRIPT, *command],
        env={**os.environ, "SLURM_LAB_DIR": str(directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


FLAGS = (
    "--recipe=demo", "--max-length=160", "--doc-stride=32", "--global-batch-size=7", "--micro-batch-size=3",
    "--learning-rate=1e-3", "--log-every-s=0", "--no-eval-before", "--dropout=0", "--checkpoint-every-steps=1000",
    "--epochs=15",
)  # fmt: skip
"""120 steps on 53 features: 7 is not divisible by two nodes, and the last batch of an epoch has 4 features."""


NUM_STEPS = 120
