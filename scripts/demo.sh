#!/usr/bin/env bash
# Trains a small real encoder on the demo corpus with two processes and records the run; --serve opens the dashboard.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

serve=no
for argument in "$@"; do
    case $argument in
        --serve) serve=yes ;;
        *) echo "usage: bash scripts/demo.sh [--serve]" >&2; exit 2 ;;
    esac
done

bash scripts/install.sh train demo
.venv/bin/torchx run -s local_cwd components/train.py:ddp --nproc_per_node 2 -- --recipe demo || {
    status=$?
    echo "not finished (status $status): bash scripts/demo.sh goes on from the last checkpoint" >&2
    exit "$status"
}
if [[ $serve == yes ]]; then
    exec .venv/bin/uvicorn dashboard.app:app
fi
