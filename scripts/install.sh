#!/usr/bin/env bash
# Creates .venv in the repository and installs the project with the given extras: bash scripts/install.sh train demo
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras=$(IFS=,; echo "$*")

find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "elasticqa needs Python 3.11 or newer on PATH" >&2
    exit 1
}

if [[ ! -x .venv/bin/python ]]; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip' 2> /dev/null; then
        # Debian and Ubuntu have this part of Python in a separate package.
        if [[ $(id -u) == 0 ]] && command -v apt-get > /dev/null; then
            apt-get -q update > /dev/null && apt-get -q install -y python3-venv > /dev/null
        else
            echo "Python's venv module is incomplete: install the package python3-venv" >&2
            exit 1
        fi
    fi
    "$python" -m venv .venv
fi

# Installs again only if the requirements have changed.
stamp=.venv/installed-$(cat pyproject.toml - <<< "$extras" | sha256sum | cut -c1-16)
if [[ ! -e $stamp ]]; then
    echo "installing elasticqa[$extras] into .venv" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    touch "$stamp"
fi
