"""Exit status of torchrun, as a scheduler reads it."""

import os
import signal
import subprocess
import sys

import pytest

from components.slurm import script
from elasticqa.elastic.stack_dumps import STACK_DUMP_SIGNAL
from elasticqa.errors import ExitCode
from tests.support.processes import piped, run

WORKER = """
import os, signal, sys, time
from elasticqa.elastic.signals import stop_with_parent
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(143))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
stop_with_parent(os.getppid())  # as a worker does: the agent may be asked to stop before it has registered the worker
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def command(*worker: str) -> list[str]:
    signals = "--signals-to-handle=SIGTERM,SIGUSR1"
    return [sys.executable, "-m", "elasticqa.elastic.torchrun", "--standalone", signals, "--no-python", *worker]


def test_job_script_has_the_same_exit_codes() -> None:
    assert (script.EXIT_ASKED_TO_STOP, script.EXIT_BAD_REQUEST) == (ExitCode.STOPPED, ExitCode.BAD_REQUEST)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signalled_agent_stops_its_workers_and_exits_as_stopped(number: signal.Signals) -> None:
    with piped(*command(sys.executable, "-c", WORKER), stderr=subprocess.PIPE) as (process, output):
        assert output.readline() == "ready\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.STOPPED
    assert f"elasticqa: stopped by {number.name}" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_stack_dump_signal_ends_the_workers_and_torchrun_restarts_them() -> None:
    code = "import os, signal; print(os.environ['TORCHELASTIC_RESTART_COUNT'], os.getpid(), flush=True); signal.pause()"
    restarted = [*command()[:3], "--max-restarts=1", *command(sys.executable, "-u", "-c", code)[3:]]
    with piped(*restarted, stderr=subprocess.DEVNULL) as (process, output):
        count, worker = output.readline().split()
        assert count == "0"
        for pid in (process.pid, int(worker)):
            os.kill(pid, STACK_DUMP_SIGNAL)
        count, _ = output.readline().split()
        assert count == "1"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == ExitCode.STOPPED


@pytest.mark.slow
@pytest.mark.parametrize(("worker", "status"), [("true", 0), ("false", 1)])
def test_other_exit_statuses_are_those_of_torchrun(worker: str, status: int) -> None:
    assert run(*command(worker)).returncode == status
