#!/usr/bin/env bash
# Does what docker-compose.yml needs of the official image: starts as root, becomes postgres, and makes a database
# from POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD_FILE when the data directory is empty.
set -euo pipefail

if [[ $(id -u) == 0 ]]; then
    # Read here, because the file may belong to a user whose files postgres cannot read.
    POSTGRES_PASSWORD=$(< "$POSTGRES_PASSWORD_FILE")
    export POSTGRES_PASSWORD
    for directory in "$PGDATA" /run/postgresql; do
        find "$directory" ! -user postgres -exec chown postgres {} +
    done
    chmod 0700 "$PGDATA"
    exec gosu postgres bash "$0" "$@"
fi

if [[ ! -s $PGDATA/PG_VERSION ]]; then
    initdb --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    # Only addresses outside may come with a password; those inside the container are trusted, as the official image has it.
    cat > "$PGDATA/pg_hba.conf" << END
local all all trust
host all all 127.0.0.1/32 trust
host all all all scram-sha-256
END
    # On its socket only, so that the server does not seem ready before the database exists.
    pg_ctl --wait start -o "-c listen_addresses=''"
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --wait --mode=fast stop
fi
unset POSTGRES_PASSWORD
exec "$@" -c listen_addresses='*'
