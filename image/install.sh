#!/bin/sh
# What the Dockerfile's build stages do: install.sh tools | code | packages TARGET | bill TARGET.
#
# Files get one fixed time and compiled code refers to content, not to times: the same locks and sources give the same bytes.
set -eu
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=1704067200 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
tools=/opt/tools
root=/opt/trainlet

settle() {
  "$root/venv/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$1" || true  # a package may hold broken samples
  find "$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

case $1 in
  tools)
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes -r image/locks/build.lock
    # The base's own packages (torch, say) are seen behind those of the lock.
    python3 -m venv --without-pip --system-site-packages "$root/venv"
    site=$("$root/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    echo "$root/code" >"$site/trainlet.pth"
    ;;
  code)
    "$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir /tmp/wheel .
    "$tools/bin/pip" --python "$root/venv/bin/python" install --quiet --no-deps --no-index --target "$root/code" /tmp/wheel/*.whl
    rm -rf /tmp/wheel "$root/code/bin"
    settle "$root/code"
    ;;
  packages)
    "$tools/bin/pip" --python "$root/venv/bin/python" install --quiet --no-deps --ignore-installed --only-binary :all: \
      --require-hashes -r "image/locks/$2.lock"
    settle "$root/venv"
    ;;
  bill)
    "$root/venv/bin/python" -S image/bill.py "$2" "$root/code" "$root"/venv/lib/python3.*/site-packages >"$root/code/sbom.cdx.json"
    touch -d "@$SOURCE_DATE_EPOCH" "$root/code/sbom.cdx.json" "$root/code"
    ;;
  *)
    echo "install.sh: tools, code, packages TARGET or bill TARGET, not $1" >&2
    exit 2
    ;;
esac
