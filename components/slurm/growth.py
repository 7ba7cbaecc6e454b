"""How an elastic job grows: for a node that it lacks, a job of one node is queued, whose agent joins the running one.

Slurm itself gives a running job more nodes only where the cluster is configured for it.
"""

import shlex
from collections.abc import Sequence

_ASK = """\
# For each node that this job could use and does not have, a job of one node waits for one and joins.
joiners={name}-joins-$SLURM_JOB_ID
joiner={joiner}
num_asked=0
gone=
ask_for_nodes() {{
    local own=() variable i present
    present=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep --invert-match --line-regexp --fixed-strings "$gone")
    for variable in $(compgen -e SLURM_); do
        if [[ $variable != SLURM_CONF ]]; then own+=(-u "$variable"); fi
    done
    for ((i = 0; i < $1; i++)); do
        env "${{own[@]}}" TORCHX_JOINED_JOB="$SLURM_JOB_ID" TORCHX_JOINED_LIFE="${{SLURM_RESTART_COUNT:-0}}" \\
            TORCHX_JOINED_LOG="$logs/$SLURM_JOB_ID-$((SLURM_JOB_NUM_NODES + num_asked)).log" \\
            {command} --exclude="${{present//$'\\n'/,}}{excluded}" --job-name="$joiners" \\
            --output="${{logs//%/%%}}/$SLURM_JOB_ID-joined.log" <<< "$joiner" >&2
        num_asked=$((num_asked + 1))
    done
}}
# Those of an earlier life, if it could not say so itself.
scancel --name="$joiners"
ask_for_nodes $(({most} - SLURM_JOB_NUM_NODES))
"""

END = """\
exec 3>&-
wait "$reader"
scancel --state=PENDING --name="$joiners"
"""
"""Of the batch script, once its tasks have ended and what they said is read: joiners that run end with them."""

_JOINER = """\
#!/bin/bash
# One more node for a job that could use it, until that life of the job is over.
is_over() {{
    local life
    if life=$(squeue --noheader --states=RUNNING --jobs="$TORCHX_JOINED_JOB" --Format=RestartCnt 2>&1); then
        [[ ${{life// /}} != "$TORCHX_JOINED_LIFE" ]]
    else
        # Where the controller does not answer nobody knows.
        [[ $life == *"Invalid job id"* ]]
    fi
}}
if is_over; then exit; fi
task={task}
(while sleep 10; do if is_over; then scancel "$SLURM_JOB_ID"; fi; done) < /dev/null > /dev/null 2>&1 &
srun --nodes=1 --ntasks=1 {cpus} --open-mode=append --output="${{TORCHX_JOINED_LOG//%/%%}}" bash -c "$task"
status=$?
kill $!
if [[ $status == {asked_to_stop} ]] && ! is_over; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
"""


def asking(
    *, name: str, excluded: str, command: Sequence[str], task: str, cpus: str, most: int, asked_to_stop: int
) -> str:
    """Return the part of a batch script that asks for the nodes that its job lacks, and can ask for more.

    Args:
        name: of the job.
        excluded: nodes that must not be used.
        command: of sbatch, without nodes, name and output.
        task: shell text that each node runs.
        cpus: flag of srun, or nothing.
        most: nodes that the job can use.
        asked_to_stop: exit status of a task that is to be started again while the job runs.
    """
    joiner = _JOINER.format(task=shlex.quote(task), cpus=cpus, asked_to_stop=asked_to_stop)
    asked = shlex.join([*command, "--nodes=1"])
    return _ASK.format(
        name=name,
        joiner=shlex.quote(joiner),
        command=asked,
        most=most,
        excluded=f",{shlex.quote(excluded)}" if excluded else "",
    )
