#!/usr/bin/env bash
# Trains a small encoder on the demo corpus with two processes; --serve starts the dashboard afterwards.
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
    echo "not finished (status $status): run bash scripts/demo.sh again to resume from the last checkpoint" >&2
    exit "$status"
}
if [[ $serve == yes ]]; then
    exec .venv/bin/uvicorn dashboard.app:app
fi
