#!/bin/sh
# Passes the database's password from a mounted file to libpq, so that no URL, environment or command line contains it.
set -eu

file=${ELASTICQA_DB_PASSWORD_FILE:-}
if [ -n "$file" ]; then
    if [ ! -r "$file" ]; then
        echo "$file cannot be read by user id $(id -u): ELASTICQA_UID must be the owner of the password file" >&2
        exit 2
    fi
    # libpq ignores a file that others can read. In it, a colon separates fields and a backslash escapes.
    (umask 077 && sed '1!d; s/[\\:]/\\&/g; s/^/*:*:*:*:/' "$file" > "$PGPASSFILE")
fi
exec "$@"
