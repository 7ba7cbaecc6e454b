"""The sbatch command line and the batch script of an application."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchx.specs import AppDef, Resource, Role, macros

from components.slurm import growth
from components.slurm.jobs import SlurmError

OPTIONS = {
    "partition": "Partition to run in (default: the cluster's default).",
    "time": "Time limit of the job between two requeues, in sbatch's format: 30, 4:00:00, 1-12:00:00.",
    "account": "Account to charge.",
    "qos": "Quality of service.",
    "constraint": "Features that every node must have.",
    "gres": "GPUs per node by type, such as gpu:a100:2, instead of the component's --gpu.",
    "reservation": "Reservation to run in.",
    "exclude": "Nodes that must not be used.",
    "signal": "Signal, and seconds before the time limit, at which the run saves and is requeued.",
    "comment": "Comment on the job.",
    "mail-user": "Recipient of mails.",
    "mail-type": "Events that cause a mail, such as END,FAIL.",
}
"""Options from `.torchxconfig` and `-cfg`, with their help; each is the sbatch flag of the same name."""

EXIT_ASKED_TO_STOP = 143
"""128 + SIGTERM: the task was asked to stop, so the job is requeued. Any other exit status is final."""
EXIT_BAD_REQUEST = 2

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLES = {macros.app_id: '"$SLURM_JOB_ID"', macros.replica_id: '"$SLURM_PROCID"'}
_MACRO = re.compile("(" + "|".join(map(re.escape, _VARIABLES)) + ")")

_SCRIPT = """\
#!/bin/bash
# The job is requeued if its tasks were asked to stop; an elastic job keeps running without lost nodes.
logs={logs}
task={task}
rm -f "$logs/$SLURM_JOB_ID.exit"
# Older versions of Slurm do not set it; newer ones round it down to seconds, possibly to before the submission.
SLURM_JOB_START_TIME=$(date +%s.%N)
export SLURM_JOB_START_TIME
# Time of the submission or the last requeue. `date` must fail without an answer: an empty text means today.
submitted=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%V)
SLURM_JOB_SUBMIT_TIME=$(date --date="${{submitted:-unknown}}" +%s)
export SLURM_JOB_SUBMIT_TIME
TORCHX_RANK0_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export TORCHX_RANK0_HOST
# A task that cannot write its log would fail without a message.
failing=$(srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 {cpus} \\
    bash -c '[[ -w $0 ]] || echo "$SLURMD_NODENAME"' "$logs")
if [[ -n $failing ]]; then
    echo "$logs cannot be written on ${{failing//$'\\n'/, }}: all nodes need one home directory; set" \\
        "ELASTICQA_HOME to one on a file system that they share" | tee -a "$logs/$SLURM_JOB_ID-0.log"
    echo {bad_request} > "$logs/$SLURM_JOB_ID.exit"
    exit {bad_request}
fi
{watch}# The end of one task must not end the others, which save or continue without it.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 {cpus} \\
    --no-kill --kill-on-bad-exit=0 --wait=0 --open-mode=append --output="${{logs//%/%%}}/%j-%t.log" \\
    bash -c "$task"{watched}
status=$?
{joined}echo "$status" > "$logs/$SLURM_JOB_ID.exit"
if [[ $status == {asked_to_stop} ]]; then
    if [[ ${{SLURM_RESTART_COUNT:-0}} -lt {max_retries} ]]; then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "not requeued: the job has been requeued ${{SLURM_RESTART_COUNT:-0}} times of {max_retries}" >&2
    fi
fi
exit "$status"
"""

_ELASTIC_TASK = """\
work() {{
{task}
}}
if [[ $SLURM_PROCID == 0 ]]; then work; fi
# Script and rendezvous of an elastic job end with its first node, but Slurm keeps the job running: the other nodes
# check for that and requeue it.
(
    trap '' USR1 USR2
    while sleep 30 && kill -0 $$; do
        nodes=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N)
        if [[ -n $nodes && $(scontrol show hostnames "$nodes" | head -n 1) != "$TORCHX_RANK0_HOST" ]]; then
            scontrol requeue "$SLURM_JOB_ID"
        fi
    done
) < /dev/null > /dev/null 2>&1 &
asked=
trap 'asked=yes' TERM USR1
trap : USR2
(work)
status=$?
# A task that stops without being asked has lost the rendezvous; Slurm notices that only later.
if [[ $status == {asked_to_stop} && -z $asked ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
"""


@dataclass(frozen=True)
class JobRequest:
    """The sbatch command line, and the script for its standard input."""

    name: str
    command: list[str]
    script: str

    def __str__(self) -> str:
        """Return both as shell input."""
        return f"{shlex.join(self.command)} << 'SCRIPT'\n{self.script}SCRIPT"


def job_request(app: AppDef, config: Mapping[str, object], logs: Path) -> JobRequest:
    """Return the request for an application with one role; each replica is a node, and ``min_replicas`` are required.

    The log directory must be the same on every node.

    Raises:
        SlurmError: the application has several roles or a name that Slurm cannot use.
    """
    if len(app.roles) != 1:
        raise SlurmError(f"the application has {len(app.roles)} roles, but a job has one: submit each role separately")
    role = app.roles[0]
    if not _NAME.fullmatch(role.name):
        raise SlurmError(
            f"name={role.name!r} is not a plain name: use 1 to 64 letters, digits, '.', '_' or '-'; --name sets it"
        )
    most, least = role.num_replicas, role.min_replicas or role.num_replicas
    asked = [
        *("sbatch", "--parsable", "--requeue", "--open-mode=append"),
        *_resource_flags(role.resource, has_gres=bool(config.get("gres"))),
        *(f"--{name}={config[name]}" for name in OPTIONS if config.get(name)),
    ]
    command = [
        *asked,
        f"--job-name={role.name}",
        f"--output={str(logs).replace('%', '%%')}/%j-batch.log",
        f"--nodes={least}-{most}",
    ]
    is_elastic = least < most
    cpus = f"--cpus-per-task={role.resource.cpu}" if role.resource.cpu > 0 else ""
    task, watch = _task(role), ""
    if is_elastic:
        # Without --no-kill, Slurm ends an elastic job when it loses a node. A job that needs all of its nodes does not
        # get the flag: Slurm requeues it.
        command.append("--no-kill")
        joiner = growth.JOINER.format(task=shlex.quote(task), cpus=cpus, asked_to_stop=EXIT_ASKED_TO_STOP)
        excluded = str(config.get("exclude") or "")
        watch = growth.WATCH.format(
            name=role.name,
            joiner=shlex.quote(joiner),
            command=shlex.join([*asked, "--nodes=1"]),
            least=least,
            most=most,
            excluded=f",{shlex.quote(excluded)}" if excluded else "",
        )
        task = _ELASTIC_TASK.format(task=task, asked_to_stop=EXIT_ASKED_TO_STOP)
    script = _SCRIPT.format(
        logs=shlex.quote(str(logs)),
        task=shlex.quote(task),
        cpus=cpus,
        watch=watch,
        watched=" 2>&3" if is_elastic else "",
        joined=growth.END if is_elastic else "",
        asked_to_stop=EXIT_ASKED_TO_STOP,
        bad_request=EXIT_BAD_REQUEST,
        max_retries=role.max_retries,
    )
    return JobRequest(role.name, command, script)


def _resource_flags(resource: Resource, *, has_gres: bool) -> list[str]:
    """Return the flags for the resources of each node.

    They do not include --ntasks-per-node, with which Slurm allocates MIN nodes of MIN-MAX even if MAX are free.
    """
    flags = []
    if resource.cpu > 0:
        flags += [f"--cpus-per-task={resource.cpu}", f"--mincpus={resource.cpu}"]
    if resource.memMB > 0:
        flags.append(f"--mem={resource.memMB}M")
    if resource.gpu > 0 and not has_gres:
        flags.append(f"--gpus-per-node={resource.gpu}")
    return flags


def _task(role: Role) -> str:
    """Return the shell script of each node: export the variables, then exec the command."""
    values = macros.Values(
        img_root=role.image,
        app_id=macros.app_id,
        replica_id=macros.replica_id,
        rank0_env="TORCHX_RANK0_HOST",
    )
    role = values.apply(role)
    lines = [f"export {name}={_word(value)}" for name, value in role.env.items()]
    return "\n".join([*lines, "exec " + " ".join(map(_word, [role.entrypoint, *role.args]))])


def _word(text: str) -> str:
    """Return a text quoted as one shell word, with TorchX's macros replaced by Slurm's variables.

    >>> print(_word("it's ${app_id}"))
    'it'"'"'s '"$SLURM_JOB_ID"
    """
    return "".join(_VARIABLES.get(part) or shlex.quote(part) for part in _MACRO.split(text) if part) or "''"
