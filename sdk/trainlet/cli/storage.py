"""What `trainlet doctor --store URL` looks at: whether a store keeps its promises, what nobody wants to pay, how fast it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from trainlet.core.errors import TrainletError

State = Literal["ok", "warn", "bad"]
Row = tuple[str, State, str, str]  # check, state, what was seen, what to do
SKEW_S = 300.0  # signatures are refused at 15 minutes
ALONE = "use another store: this one takes one writer at a time, no ranks, and relies on the API's epochs alone"
OTHER = "use another store: with this one a checkpoint can be lost when two workers meet"


def examine(url: str, grace_s: float, *, sweep: bool) -> Iterator[Row]:
    """Yield what was seen, one check after the other; with `sweep`, end uploads that were given up."""
    from trainlet.client.stores import open_store
    from trainlet_functions.checkpoints import probes

    store = open_store(url)
    yield _checked("ranges", lambda: probes.wrong_ranges(store), "use another store: restores read parts of objects")
    yield _checked(
        "listing", lambda: probes.wrong_listing(store), "use another store: the newest record is found by LIST"
    )
    if url.startswith("s3://"):
        yield from _bucket(url, sweep)
    try:
        found = probes.speed(store)
    except (TrainletError, OSError) as error:
        yield "speed", "bad", str(error).splitlines()[0], "look at the store's log"
        return
    rates = f"{found.put_bytes_per_s / 1e6:.0f} MB/s in, {found.get_bytes_per_s / 1e6:.0f} MB/s out"
    yield "speed", "ok", rates, ""
    size = found.saves_within(grace_s)
    fix = "" if size >= 1 << 30 else "raise grace= of steps whose state is larger; until then they upload all the time"
    yield (
        "grace",
        "ok" if size >= 1 << 30 else "warn",
        f"a stop with grace={grace_s:g} s saves {size / 2**30:.1f} GiB",
        fix,
    )


def _bucket(url: str, sweep: bool) -> Iterator[Row]:
    from trainlet_functions.checkpoints import buckets

    try:
        bucket = buckets.Bucket(url)
    except TrainletError as error:
        yield "bucket", "warn", "not looked at", str(error)
        return

    def said(check: str, look: Callable[[], tuple[State, str, str]]) -> Row:
        try:
            return check, *look()
        except TrainletError as error:
            return (
                check,
                "warn",
                str(error).splitlines()[0],
                "the store may lack this call, or the credentials the right to it",
            )

    def torn() -> tuple[State, str, str]:
        bad = bucket.tears()
        return (
            ("bad", "half of a write became an object", OTHER)
            if bad
            else ("ok", "a write that is cut off leaves nothing", "")
        )

    def checksums() -> tuple[State, str, str]:
        good = bucket.checks_sums()
        return (
            "ok",
            "wrong ones are refused" if good else "not looked at by the store; every restore checks its own",
            "",
        )

    def versions() -> tuple[State, str, str]:
        fix = "set NoncurrentVersionExpiration: else what is removed stays and is paid for"
        return ("warn", "the bucket is versioned", fix) if bucket.versioned() else ("ok", "not versioned", "")

    def lifecycle() -> tuple[State, str, str]:
        good = bucket.ends_uploads()
        fix = "add a lifecycle rule AbortIncompleteMultipartUpload of 1 day, or run this with --sweep now and then"
        return ("ok", "unfinished uploads end", "") if good else ("warn", "no rule ends unfinished uploads", fix)

    def uploads() -> tuple[State, str, str]:
        number = bucket.sweep() if sweep else len(bucket.abandoned())
        if sweep or not number:
            return "ok", f"{number} abandoned uploads {'ended' if sweep else 'found'}", ""
        return "warn", f"{number} abandoned uploads", "their parts are paid for: run this with --sweep"

    def clock() -> tuple[State, str, str]:
        skew = bucket.skew_s()
        bad = abs(skew) > SKEW_S
        return "warn" if bad else "ok", f"{abs(skew):.0f} s from the store's", "set this machine's clock" if bad else ""

    try:
        yield said("torn writes", torn)
        yield said("checksums", checksums)
        yield said("versions", versions)
        yield said("lifecycle", lifecycle)
        yield said("uploads", uploads)
        yield said("clock", clock)
    finally:
        bucket.close()


def _checked(check: str, look: Callable[[], str], fix: str) -> Row:
    try:
        wrong = look()
    except (TrainletError, OSError) as error:
        return check, "bad", str(error).splitlines()[0], fix
    return check, "bad" if wrong else "ok", wrong or "as it must be", fix if wrong else ""
