"""Read links: a committed checkpoint for somebody without credentials, for a limited time.

Each link is a signed URL that reads one object and nothing else. With the manifest's link comes the blake3 that the log
has for it, so whoever follows the links can check every byte (docs/checkpoints.md). Control objects are never linked.
"""

from __future__ import annotations

from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.wire import CheckpointLinks
from trainlet_functions.checkpoints import listing, manifests
from trainlet_functions.checkpoints.buckets import Bucket
from trainlet_functions.checkpoints.log import Log

LONGEST_S = 7 * 24 * 3600  # what a signature of S3 may live


def links(store: ObjectStore, prefix: str, step: int | None, valid_s: float) -> CheckpointLinks:
    """Return links that read the checkpoint of a step (None: the newest) for so many seconds.

    Raises UserError for a store that is no bucket, or a time that a signature cannot have.
    """
    if not 1 <= valid_s <= LONGEST_S:
        raise UserError(f"A link is valid for 1 s to 7 days, not for {valid_s:g} s.")
    if not store.url.startswith("s3://"):
        raise UserError(
            f"{store.url} is no bucket, so nobody else can be given a link to it. Write the checkpoint to a file instead: "
            f"trainlet checkpoints export {prefix.removeprefix('runs/')} FILE"
        )
    commit = listing.chosen(Log(store, prefix).refresh(), prefix, step)
    manifest = manifests.read(store, prefix, commit)
    bucket = Bucket(store.url)
    try:
        return CheckpointLinks(
            step=commit.step,
            valid_s=int(valid_s),
            digest=commit.digest,
            manifest=bucket.link(commit.manifest, int(valid_s)),
            packs={key: bucket.link(key, int(valid_s)) for key in manifest.packs},
        )
    finally:
        bucket.close()
