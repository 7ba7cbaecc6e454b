"""The environment of training processes, and the number of their threads."""

import json
import os

import pytest

from elasticqa.distributed.process_environment import set_torch_defaults, without_outer_allocation
from tests.support.processes import run_python

THREADS = "OMP_NUM_THREADS"
BEGUN = "import os, torch; print(torch.get_num_threads())"
# 37: as if torch had counted CPUs that this process may not use.
ENTERED = """
import json, os, sys, torch
from elasticqa.distributed.process_environment import replace_environment
torch.set_num_threads(37)
replace_environment(json.loads(sys.argv[1]))
print(torch.get_num_threads())
"""


def test_local_job_inside_an_allocation_loses_its_variables() -> None:
    shell = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "PATH": "/bin"}
    assert without_outer_allocation({**shell, "TORCHX_JOB_ID": "local_cwd://torchx/ddp-x"}) == {
        "PATH": "/bin",
        "TORCHX_JOB_ID": "local_cwd://torchx/ddp-x",
    }
    for environ in (shell, {**shell, "TORCHX_JOB_ID": "slurm://torchx/7"}):
        assert without_outer_allocation(environ) == environ


@pytest.mark.parametrize(("variables", "expected"), [({}, None), ({THREADS: "5"}, "5"), ({THREADS: "4,2"}, "4,2")])
def test_cpus_are_divided_among_the_processes_of_a_node_unless_threads_are_set(
    variables: dict[str, str], expected: str | None
) -> None:
    environ = {"PATH": "/bin", **variables}
    set_torch_defaults(environ, 1)
    assert environ[THREADS] == (expected or str(len(os.sched_getaffinity(0))))
    environ = {**variables}
    set_torch_defaults(environ, 10_000)
    assert environ[THREADS] == (expected or "1")


def output_of(program: str, *argv: str, **variables: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != THREADS}
    done = run_python("-c", program, *argv, env={**environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1", "2", "64"])
def test_replaced_environment_sets_the_threads_of_a_process_started_with_it(number: str) -> None:
    environ = {**os.environ, THREADS: number}
    assert output_of(ENTERED, json.dumps(environ)) == output_of(BEGUN, **{THREADS: number})


@pytest.mark.slow
@pytest.mark.parametrize("name", [THREADS, "MKL_NUM_THREADS"])
def test_threads_set_before_torch_was_imported_stay(name: str) -> None:
    assert output_of(ENTERED, json.dumps({**os.environ, THREADS: "2", name: "2"}), **{name: "2"}) == "37\n"


def test_environment_is_replaced_completely() -> None:
    program = "import json, os, sys; from elasticqa.distributed.process_environment import replace_environment\n"
    program += "replace_environment(json.loads(sys.argv[1]))\n"
    program += "import subprocess; print(json.dumps([dict(os.environ), subprocess.getoutput('echo $GONE $NEW')]))"
    wanted = {"PATH": os.environ["PATH"], "NEW": "new"}
    assert json.loads(output_of(program, json.dumps(wanted), GONE="gone")) == [wanted, "new"]
