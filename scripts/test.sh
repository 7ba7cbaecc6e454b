#!/usr/bin/env bash
# Makes the environment and runs every check and test. As root on Debian it installs the system packages they use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(chromium debootstrap docker.io iptables postgresql munge slurmctld slurmd slurm-client iproute2 procps util-linux)

made=() lane=
clean() {
    [[ -z $lane ]] || kill "$lane" 2> /dev/null || true
    rm -f "${made[@]}"
}
trap clean EXIT

missing=()
if command -v dpkg-query > /dev/null; then
    for package in "${packages[@]}"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2> /dev/null | grep -qx installed || missing+=("$package")
    done
fi
if ((${#missing[@]})); then
    if [[ $(id -u) == 0 ]]; then
        echo "installing ${missing[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q -o DPkg::Lock::Timeout=300 update > /dev/null
        # No service of a package may start by itself: tests start what they use and stop it.
        if [[ ! -e /usr/sbin/policy-rc.d ]]; then
            made+=(/usr/sbin/policy-rc.d)
            printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
            chmod +x /usr/sbin/policy-rc.d
        fi
        apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" > /dev/null
    else
        echo "not installed, so the tests that use them will skip: ${missing[*]}" >&2
    fi
fi

bash scripts/install.sh train demo postgresql test
export PATH=$PWD/.venv/bin:$PATH
ruff check .
ruff format --check .
lint-imports
mypy

# Whole jobs, which wait more than they compute: beside the others, with their output at the end.
beside=(tests/slurm tests/compose tests/chaos tests/elasticqa/training/test_runs.py)
output=$(mktemp)
made+=("$output")
pytest --durations=15 "${beside[@]}" > "$output" 2>&1 &
lane=$!
status=0
pytest --doctest-modules --durations=15 "${beside[@]/#/--ignore=}" elasticqa db dashboard components tests || status=$?
wait "$lane" || status=$?
lane=
cat "$output"
exit "$status"
