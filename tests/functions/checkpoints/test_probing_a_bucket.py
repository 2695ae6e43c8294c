"""What `trainlet doctor --store s3://...` says of a bucket, and the uploads that it ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests import servers

from trainlet.cli import storage
from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints import buckets, probes
from trainlet_functions.checkpoints.buckets import Bucket


@pytest.fixture
def url() -> Iterator[str]:
    with servers.moto() as endpoint, servers.bucket_at(endpoint) as made:
        yield f"{made}/some/prefix"


@pytest.fixture
def bucket(url: str) -> str:
    """Return the name of the bucket."""
    return urlsplit(url).netloc


@pytest.fixture
def client(url: str, bucket: str) -> Iterator[Any]:
    import boto3

    made = boto3.client("s3", region_name="us-east-1")
    made.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probes.speed
    monkeypatch.setattr(probes, "speed", lambda store: whole(store, objects=2, object_bytes=1 << 16))


def seen(url: str, sweep: bool = False) -> dict[str, tuple[str, str]]:
    return {check: (state, saw) for check, state, saw, _ in storage.examine(url, 30.0, sweep=sweep)}


def test_a_bucket_is_looked_at_and_left_as_it_was(url: str, bucket: str, client: Any) -> None:
    found = seen(url)
    assert {check for check, (state, _) in found.items() if state == "bad"} == set()
    assert set(found) == {
        *(
            "ranges",
            "listing",
            "torn writes",
            "checksums",
            "versions",
            "lifecycle",
            "uploads",
            "clock",
            "speed",
            "grace",
        )
    }
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_versioned_bucket_without_a_rule_is_a_warning_with_what_to_do(url: str, bucket: str, client: Any) -> None:
    assert seen(url)["versions"][0] == "ok"
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    found = seen(url)
    assert found["versions"] == ("warn", "the bucket is versioned")
    assert found["lifecycle"][0] == "warn"
    rule = {"ID": "x", "Status": "Enabled", "Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    assert seen(url)["lifecycle"][0] == "ok"


def test_uploads_that_were_given_up_are_ended_and_others_go_on(
    url: str, bucket: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("some/prefix/large", "elsewhere/large"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    began = client.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Initiated"]  # moto's clock stands
    monkeypatch.setattr(Bucket, "now", lambda self: began + timedelta(hours=23))
    assert seen(url, sweep=True)["uploads"][1] == "0 abandoned uploads ended", "an upload of today may be going on"
    monkeypatch.setattr(Bucket, "now", lambda self: began + timedelta(hours=25))
    assert seen(url)["uploads"] == ("warn", "1 abandoned uploads")
    assert seen(url, sweep=True)["uploads"][1] == "1 abandoned uploads ended"
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [one["Key"] for one in left] == ["elsewhere/large"]


def test_a_bucket_that_tears_writes_is_bad(url: str, bucket: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_half(self: Any, key: str) -> None:
        client.put_object(Bucket=bucket, Key=key, Body=b"to")

    monkeypatch.setattr(buckets.Bucket, "_cut_off", takes_half)
    assert seen(url)["torn writes"] == ("bad", "half of a write became an object")


def test_a_bucket_that_is_not_there_is_said_by_every_check(url: str) -> None:
    rows = seen(f"{url.partition('/some')[0]}-not-there")
    assert {name for name, (state, _) in rows.items() if state == "bad"} == {"ranges", "listing", "speed"}
    assert not {name for name, (state, _) in rows.items() if state == "ok"}
    assert all("not-there" in saw for _, saw in rows.values())


def test_a_call_that_a_store_lacks_is_said_and_the_rest_goes_on(
    url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(self: Any) -> bool:
        raise PlatformError("NotImplemented")

    monkeypatch.setattr(Bucket, "versioned", lacks)
    found = seen(url)
    assert found["versions"] == ("warn", "NotImplemented") and found["clock"][0] == "ok"
