#!/bin/sh
# Download what the images' build installs, for a build without a network: wheelhouse.sh FOLDER [PYTHON_VERSION].
#
# PYTHON_VERSION (3.11) is that of the base image; the machine must be of the same architecture. The hashes of the locks are
# checked here and once more in the build.
set -eu
cd "$(dirname "$0")/.."
folder=$1
version=${2:-3.11}
python=${PYTHON:-python3}
for lock in image/locks/*.lock; do
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --python-version "$version" --dest "$folder" -r "$lock"
done
