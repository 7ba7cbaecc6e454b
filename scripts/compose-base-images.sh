#!/usr/bin/env bash
# Makes the images that docker-compose.yml builds on from Debian's packages, under the names it uses, for machines
# that reach a Debian mirror and no image registry. They stand in for the official ones in tests and are not those.
#   usage, as root: bash scripts/compose-base-images.sh [PLUGINS]
# PLUGINS: a directory that gets Debian's compose plugin as well, where the host's own release has none.
# DOCKER_HOST says which engine gets the images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=trixie
mirror=http://deb.debian.org/debian
python_image=$(sed -n 's/^FROM \(python:[^ ]*\).*/\1/p' docker/Dockerfile | head -n 1)
postgres_image=$(sed -n 's/^ *image: \(postgres:.*\)/\1/p' docker-compose.yml)
for image in "$python_image" "$postgres_image"; do
    if [[ $image != *-"$suite" ]]; then
        echo "image '$image': this script makes images of Debian $suite, whose names end in -$suite" >&2
        exit 1
    fi
done
plugins=${1:-}
if [[ -n $plugins ]]; then
    mkdir -p "$plugins"
    plugins=$(cd "$plugins" && pwd)
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
debootstrap --variant=minbase "$suite" "$root" "$mirror"
if [[ -n $plugins ]]; then
    chroot "$root" sh -c 'cd /tmp && apt-get -q update && apt-get -q download docker-compose'
    dpkg-deb --fsys-tarfile "$root"/tmp/docker-compose_*.deb |
        tar -x -C "$plugins" --strip-components=5 ./usr/libexec/docker/cli-plugins/docker-compose
    rm -r "$root"/tmp/* "$root"/var/lib/apt/lists/*
fi
# An image that is lost in a crash is made anew: waiting for the disk after every file would only take time.
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
# A network with a certificate authority of its own: pip inside has to trust it as well.
mkdir -p "$root/usr/local/share/ca-certificates"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates" \;
tar -C "$root" -c . | docker import - "debian:$suite-minbase"

# The classic builder is in every engine, buildx is not.
export DOCKER_BUILDKIT=0
docker build --network host --tag "$python_image" --file tests/compose/images/python.Dockerfile tests/compose/images
docker build --network host --tag "$postgres_image" --file tests/compose/images/postgres.Dockerfile tests/compose/images
