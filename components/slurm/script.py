"""What sbatch is given for an application: its command line and the batch script."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchx.specs import AppDef, Resource, Role, macros

from components.slurm import growth
from components.slurm.errors import SlurmError
from components.slurm.options import sbatch_flags

EXIT_ASKED_TO_STOP = 143
"""128 + SIGTERM: a task that ended because it was asked to; the job is queued again. All else is final."""
EXIT_BAD_REQUEST = 2

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLES = {macros.app_id: '"$SLURM_JOB_ID"', macros.replica_id: '"$SLURM_PROCID"'}
_MACRO = re.compile("(" + "|".join(map(re.escape, _VARIABLES)) + ")")

_SCRIPT = """\
#!/bin/bash
# One ordinary allocation: it is queued again when its tasks were asked to stop, and goes on without lost nodes.
logs={logs}
task={task}
rm -f "$logs/$SLURM_JOB_ID.exit"
# Older versions of Slurm do not tell the time, newer ones cut it to seconds, which may be before the submission.
SLURM_JOB_START_TIME=$(date +%s.%N)
export SLURM_JOB_START_TIME
# Of this life: the submission or the requeue. Without an answer `date` would take today.
submitted=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%V)
SLURM_JOB_SUBMIT_TIME=$(date --date="${{submitted:-unknown}}" +%s)
export SLURM_JOB_SUBMIT_TIME
TORCHX_RANK0_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export TORCHX_RANK0_HOST
# A task without a file for what it says would end without a word.
without=$(srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 {cpus} \\
    bash -c '[[ -w $0 ]] || echo "$SLURMD_NODENAME"' "$logs")
if [[ -n $without ]]; then
    echo "$logs cannot be written on ${{without//$'\\n'/, }}: all nodes need one home directory; set" \\
        "ELASTICQA_HOME to one on a file system that they share" | tee -a "$logs/$SLURM_JOB_ID-0.log"
    echo {bad_request} > "$logs/$SLURM_JOB_ID.exit"
    exit {bad_request}
fi
{watch}# The first task that ends must not take the others with it: they save, or go on without it.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 {cpus} \\
    --no-kill --kill-on-bad-exit=0 --wait=0 --open-mode=append --output="${{logs//%/%%}}/%j-%t.log" \\
    bash -c "$task"{watched}
status=$?
{joined}echo "$status" > "$logs/$SLURM_JOB_ID.exit"
if [[ $status == {asked_to_stop} ]]; then
    if [[ ${{SLURM_RESTART_COUNT:-0}} -lt {max_retries} ]]; then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "not queued again: the job has been started anew ${{SLURM_RESTART_COUNT:-0}} times of {max_retries}" >&2
    fi
fi
exit "$status"
"""

_WATCH = """\
# The others would wait for a lost node: they are told, by a signal that ends what has no use for it. Where too few are
# left, the job is queued again.
lost=0
look_for_lost_nodes() {{
    while IFS= read -r line; do
        printf '%s\\n' "$line" >&2
        if [[ $line == *"Node failure on "* ]]; then
            hosts=$(scontrol show hostnames "${{line##* }}")
            gone+=$'\\n'$hosts
            num_lost=$(wc -l <<< "$hosts")
            lost=$((lost + num_lost))
            if ((SLURM_JOB_NUM_NODES - lost < {least})); then
                scontrol requeue "$SLURM_JOB_ID"
            else
                # The ranks noticed long ago that a peer is silent, and may have gone on without it.
                ask_for_nodes "$num_lost"
            fi
        fi
    done
}}
exec 3> >(look_for_lost_nodes)
reader=$!
"""

_ELASTIC_TASK = """\
work() {{
{task}
}}
if [[ $SLURM_PROCID == 0 ]]; then work; fi
# The script of an elastic job dies with the first node, and the rendezvous too, while Slurm leaves the job running: the
# other nodes look for that and queue it again.
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
# A task that stops and was not asked to has lost the rendezvous, long before Slurm notices.
if [[ $status == {asked_to_stop} && -z $asked ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
"""


@dataclass(frozen=True)
class JobRequest:
    """The command line of sbatch, and the script for its standard input."""

    name: str
    command: list[str]
    script: str

    def __str__(self) -> str:
        """Return both as one would type them."""
        return f"{shlex.join(self.command)} << 'SCRIPT'\n{self.script}SCRIPT"


def job_request(app: AppDef, config: Mapping[str, object], logs: Path) -> JobRequest:
    """Return what sbatch is given.

    Args:
        app: of one role; its replicas are nodes, at least ``min_replicas`` of them.
        config: resolved options of the scheduler.
        logs: directory of the logs, the same on every node.

    Raises:
        SlurmError: the application is not of that kind.
    """
    if len(app.roles) != 1:
        raise SlurmError(f"the application has {len(app.roles)} roles: a job has one; submit each by itself")
    role = app.roles[0]
    if not _NAME.fullmatch(role.name):
        raise SlurmError(
            f"name={role.name!r} is not a plain name: use 1 to 64 letters, digits, '.', '_' or '-'; --name sets it"
        )
    most, least = role.num_replicas, role.min_replicas or role.num_replicas
    asked = [
        *("sbatch", "--parsable", "--requeue", "--open-mode=append"),
        *_resource_flags(role.resource, has_gres=bool(config.get("gres"))),
        *sbatch_flags(config),
    ]
    command = [
        *asked,
        f"--job-name={role.name}",
        f"--output={str(logs).replace('%', '%%')}/%j-batch.log",
        f"--nodes={least}-{most}",
    ]
    is_elastic = least < most
    if is_elastic:
        # Slurm would end the job with a lost node, though fewer are enough. Where they are not, that is right: a
        # requeue gives the job whole nodes.
        command.append("--no-kill")
    cpus = f"--cpus-per-task={role.resource.cpu}" if role.resource.cpu > 0 else ""
    task = _task(role)
    growing = growth.asking(
        name=role.name,
        excluded=str(config.get("exclude") or ""),
        command=asked,
        task=task,
        cpus=cpus,
        most=most,
        asked_to_stop=EXIT_ASKED_TO_STOP,
    )
    script = _SCRIPT.format(
        logs=shlex.quote(str(logs)),
        task=shlex.quote(_ELASTIC_TASK.format(task=task, asked_to_stop=EXIT_ASKED_TO_STOP) if is_elastic else task),
        cpus=cpus,
        watch=growing + _WATCH.format(least=least) if is_elastic else "",
        watched=" 2>&3" if is_elastic else "",
        joined=growth.END if is_elastic else "",
        asked_to_stop=EXIT_ASKED_TO_STOP,
        bad_request=EXIT_BAD_REQUEST,
        max_retries=role.max_retries,
    )
    return JobRequest(role.name, command, script)


def _resource_flags(resource: Resource, *, has_gres: bool) -> list[str]:
    """Return what each node must have.

    No --ntasks-per-node: with it Slurm takes MIN nodes of MIN-MAX even where MAX are free.
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
    """Return the shell text that each node runs: the variables, then the command in place of the shell."""
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
    """Return a text as one word of the shell, with TorchX's macros as Slurm's variables.

    >>> print(_word("it's ${app_id}"))
    'it'"'"'s '"$SLURM_JOB_ID"
    """
    return "".join(_VARIABLES.get(part) or shlex.quote(part) for part in _MACRO.split(text) if part) or "''"
