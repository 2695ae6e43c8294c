#!/usr/bin/env bash
# Build the three images as a user would, from nothing: a base by debootstrap, wheels, then buildah without a network.
#
#   build.sh FOLDER     the storage is FOLDER/storage, the images are localhost/trainlet-{base,dispatch,worker,api}
#
# Needs root, buildah and debootstrap. Layers are an overlay where this file system can be below one; elsewhere (in most
# containers) they are copied by `vfs`. STORAGE_DRIVER chooses; FOLDER/driver says which it was.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath -m "$1")
suite=${TRAINLET_TEST_IMAGE_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=${TRAINLET_TEST_IMAGE_MIRROR:-http://deb.debian.org/debian}
mkdir -p "$folder"
cd "$folder"

possible_driver() {
  mkdir -p probe/{lower,upper,work,merged}
  if mount -t overlay overlay -o lowerdir=probe/lower,upperdir=probe/upper,workdir=probe/work probe/merged 2>/dev/null; then
    umount probe/merged
    echo overlay
  else
    echo vfs
  fi
  rm -rf probe
}
driver=${STORAGE_DRIVER:-$(possible_driver)}
echo "$driver" >driver
export BUILDAH_ISOLATION=chroot
builder() { buildah --storage-driver "$driver" --root "$folder/storage" --runroot "$folder/run" "$@"; }

step() { printf '%(%T)T %s\n' -1 "$1"; }

step "the base: Debian $suite with Python (layers: $driver)"
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
for target in ; do
  step "the image of the $target"
  # An index that cannot be reached: whatever the wheels lack is an error.
  builder bud --quiet --layers --pull-never --target "$target" --tag "localhost/trainlet-$target" \
    --build-arg BASE=localhost/trainlet-base --build-arg "REVISION=$revision" \
    --volume "$folder/wheels:/wheels:ro" --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels \
    "$root" >/dev/null
done
step "done"
