"""The environment that a trainer begins in, and that a process which goes on as one has the threads that follow."""

import json
import os

import pytest

from elasticqa.distributed.process_environment import set_torch_defaults, without_outer_allocation
from tests.support.processes import run_python

THREADS = "OMP_NUM_THREADS"
BEGUN = "import os, torch; print(torch.get_num_threads())"
# As where torch counts CPUs that are not this process's.
ENTERED = """
import json, os, sys, torch
from elasticqa.distributed.process_environment import replace_environment
torch.set_num_threads(37)
replace_environment(json.loads(sys.argv[1]))
print(torch.get_num_threads())
"""


def test_local_run_inside_an_allocation_is_a_local_one() -> None:
    shell = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "PATH": "/bin"}
    assert without_outer_allocation({**shell, "TORCHX_JOB_ID": "local_cwd://torchx/ddp-x"}) == {
        "PATH": "/bin",
        "TORCHX_JOB_ID": "local_cwd://torchx/ddp-x",
    }
    for environ in (shell, {**shell, "TORCHX_JOB_ID": "slurm://torchx/7"}):
        assert without_outer_allocation(environ) == environ


@pytest.mark.parametrize(("said", "expected"), [({}, None), ({THREADS: "5"}, "5"), ({THREADS: "4,2"}, "4,2")])
def test_threads_are_shared_by_the_processes_of_a_node_unless_somebody_said_how_many(
    said: dict[str, str], expected: str | None
) -> None:
    environ = {"PATH": "/bin", **said}
    set_torch_defaults(environ, 1)
    assert environ[THREADS] == (expected or str(len(os.sched_getaffinity(0))))
    environ = {**said}
    set_torch_defaults(environ, 10_000)
    assert environ[THREADS] == (expected or "1")


def told(program: str, *argv: str, **variables: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != THREADS}
    done = run_python("-c", program, *argv, env={**environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1", "2", "64"])
def test_process_has_the_threads_of_one_that_begins_in_the_environment(number: str) -> None:
    environ = {**os.environ, THREADS: number}
    assert told(ENTERED, json.dumps(environ)) == told(BEGUN, **{THREADS: number})


@pytest.mark.slow
@pytest.mark.parametrize("name", [THREADS, "MKL_NUM_THREADS"])
def test_threads_that_torch_was_told_of_when_it_was_imported_stay(name: str) -> None:
    assert told(ENTERED, json.dumps({**os.environ, THREADS: "2", name: "2"}), **{name: "2"}) == "37\n"


def test_environment_is_replaced_whole() -> None:
    program = "import json, os, sys; from elasticqa.distributed.process_environment import replace_environment\n"
    program += "replace_environment(json.loads(sys.argv[1]))\n"
    program += "import subprocess; print(json.dumps([dict(os.environ), subprocess.getoutput('echo $GONE $NEW')]))"
    wanted = {"PATH": os.environ["PATH"], "NEW": "new"}
    assert json.loads(told(program, json.dumps(wanted), GONE="gone")) == [wanted, "new"]
