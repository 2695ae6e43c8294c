#!/usr/bin/env bash
# Build the three images as a user would, from nothing: a base by debootstrap, wheels, then buildah without a network.
#
#   build.sh FOLDER     the storage is FOLDER/storage, the images are localhost/trainlet-{base,dispatch,worker,api}
#
# Needs root, buildah and debootstrap. `vfs` copies every layer, and works on any file system.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath -m "$1")
suite=${TRAINLET_TEST_IMAGE_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=${TRAINLET_TEST_IMAGE_MIRROR:-http://deb.debian.org/debian}
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=chroot
builder() { buildah --root "$folder/storage" --runroot "$folder/run" "$@"; }
mkdir -p "$folder"
cd "$folder"

step() { printf '%(%T)T %s\n' -1 "$1"; }

step "the base: Debian $suite with Python"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" base "$mirror" >debootstrap.log 2>&1 ||
  { tail -20 debootstrap.log >&2; exit 1; }
rm -rf base/var/cache/apt/archives/*.deb base/var/lib/apt/lists/* base/usr/share/doc base/usr/share/locale base/usr/share/man
version=$(chroot base python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
container=$(builder from scratch)
builder add --quiet "$container" base / >/dev/null
builder config --cmd python3 "$container"
builder commit --quiet --rm "$container" localhost/trainlet-base >/dev/null
rm -rf base

step "the wheels for Python $version"
PYTHON=${PYTHON:-python3} "$root/image/wheelhouse.sh" "$folder/wheels" "$version"

revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
for target in dispatch worker api; do
  step "the image of the $target"
  # An index that cannot be reached: whatever the wheels lack is an error.
  builder bud --quiet --layers --pull-never --target "$target" --tag "localhost/trainlet-$target" \
    --build-arg BASE=localhost/trainlet-base --build-arg "REVISION=$revision" \
    --volume "$folder/wheels:/wheels:ro" --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels \
    "$root" >/dev/null
done
step "done"
