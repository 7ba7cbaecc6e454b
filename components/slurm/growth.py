"""Add nodes to a running elastic job: for each missing node, submit a one-node job whose agent joins the job.

Slurm itself adds nodes to a running job only if the cluster is configured for it.
"""

WATCH = """\
# For each node that this job lacks, queue a job of one node that joins this one.
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
# Cancel those that were left before a requeue.
scancel --name="$joiners"
ask_for_nodes $(({most} - SLURM_JOB_NUM_NODES))
# Read srun's messages about lost nodes: queue joiners for them, or requeue the job if too few nodes are left.
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
                # The ranks have noticed earlier that a peer is silent, and continue without it.
                ask_for_nodes "$num_lost"
            fi
        fi
    done
}}
exec 3> >(look_for_lost_nodes)
reader=$!
"""
"""Part of the batch script before the tasks; ``excluded`` is empty or a comma and nodes in Slurm's list format."""

END = """\
exec 3>&-
wait "$reader"
scancel --state=PENDING --name="$joiners"
"""
"""End of the batch script: wait for `reader`, then cancel pending joiners; running ones end by themselves."""

JOINER = """\
#!/bin/bash
# One more node for a running job, until that job ends or is requeued.
is_over() {{
    local life
    if life=$(squeue --noheader --states=RUNNING --jobs="$TORCHX_JOINED_JOB" --Format=RestartCnt 2>&1); then
        [[ ${{life// /}} != "$TORCHX_JOINED_LIFE" ]]
    else
        # If the controller does not answer, the job may still run.
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
"""Batch script of a joiner; a task that ends with ``asked_to_stop`` is requeued while the job runs."""
