#!/usr/bin/env bash
# Builds the base images of docker-compose.yml from Debian packages, under the names of the official images, for tests on
# machines that reach a Debian mirror but no image registry.
#   usage, as root: bash scripts/compose-base-images.sh [PLUGINS]
# PLUGINS: directory for Debian's compose plugin, if the host's release has none.
# DOCKER_HOST: the engine that gets the images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=trixie
mirror=http://deb.debian.org/debian
python_image=$(sed -n 's/^FROM \(python:[^ ]*\).*/\1/p' docker/Dockerfile | head -n 1)
postgres_image=$(sed -n 's/^ *image: \(postgres:.*\)/\1/p' docker-compose.yml)
for image in "$python_image" "$postgres_image"; do
    if [[ $image != *-"$suite" ]]; then
        echo "image '$image': this script builds images of Debian $suite, whose names end in -$suite" >&2
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
# No fsync per file: an image lost in a crash can be built again.
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
# Certificate authorities of this network, which pip inside must trust too.
mkdir -p "$root/usr/local/share/ca-certificates"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates" \;
tar -C "$root" -c . | docker import - "debian:$suite-minbase"

# Every engine has the classic builder, but not every one has buildx.
export DOCKER_BUILDKIT=0
docker build --network host --tag "$python_image" --file tests/compose/images/python.Dockerfile tests/compose/images
docker build --network host --tag "$postgres_image" --file tests/compose/images/postgres.Dockerfile tests/compose/images
