#!/usr/bin/env bash
# Writes the files that docker-compose.yml reads: .env (owner and path of the home) and the database's password.
# Existing files are not changed.
set -euo pipefail

uid=${ELASTICQA_UID:-$(id -u)}
gid=${ELASTICQA_GID:-$(id -g)}
home=${ELASTICQA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/elasticqa}
if [[ $uid == 0 ]]; then
    echo "the containers must not run as root: set ELASTICQA_UID and ELASTICQA_GID to those of the runs' owner" >&2
    exit 2
fi

umask 077
mkdir -p "$home/runs"
home=$(cd "$home" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
password=docker/secrets/db-password
mkdir -p "${password%/*}"
if [[ ! -e $password ]]; then
    od -An -N 24 -t x1 /dev/urandom | tr -d ' \n' > "$password"
fi
if [[ $uid != "$(id -u)" ]]; then
    chown "$uid:$gid" "$home" "$home/runs" "$password"
fi
if [[ -e .env ]]; then
    echo ".env exists and is left as it is" >&2
else
    printf "ELASTICQA_UID=%s\nELASTICQA_GID=%s\nELASTICQA_HOME='%s'\n" "$uid" "$gid" "$home" > .env
fi
echo "next: docker compose up --build --wait"
