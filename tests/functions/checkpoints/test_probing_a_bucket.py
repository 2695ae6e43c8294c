"""What `trainlet doctor --store s3://...` says of a bucket, and the uploads that it ends."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from trainlet.cli import storage
from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints import buckets, probes
from trainlet_functions.checkpoints.buckets import Bucket

BUCKET = f"bucket-{uuid.uuid4().hex[:12]}"  # moto keeps what is in one for the whole process
URL = f"s3://{BUCKET}/some/prefix"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    made = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}")
    made.create_bucket(Bucket=BUCKET)
    made.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    yield made
    made.close()
    server.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probes.speed
    monkeypatch.setattr(probes, "speed", lambda store: whole(store, objects=2, object_bytes=1 << 16))


def seen(sweep: bool = False) -> dict[str, tuple[str, str]]:
    return {check: (state, saw) for check, state, saw, _ in storage.examine(URL, 30.0, sweep=sweep)}


def test_a_bucket_is_looked_at_and_left_as_it_was(client: Any) -> None:
    found = seen()
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
    assert client.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0


def test_a_versioned_bucket_without_a_rule_is_a_warning_with_what_to_do(client: Any) -> None:
    assert seen()["versions"][0] == "ok"
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    found = seen()
    assert found["versions"] == ("warn", "the bucket is versioned")
    assert found["lifecycle"][0] == "warn"
    rule = {"ID": "x", "Status": "Enabled", "Filter": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    assert seen()["lifecycle"][0] == "ok"


def test_uploads_that_were_given_up_are_ended_and_others_go_on(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("some/prefix/large", "elsewhere/large"):
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    began = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"][0]["Initiated"]  # moto's clock stands
    monkeypatch.setattr(Bucket, "now", lambda self: began + timedelta(hours=23))
    assert seen(sweep=True)["uploads"][1] == "0 abandoned uploads ended", "an upload of today may be going on"
    monkeypatch.setattr(Bucket, "now", lambda self: began + timedelta(hours=25))
    assert seen()["uploads"] == ("warn", "1 abandoned uploads")
    assert seen(sweep=True)["uploads"][1] == "1 abandoned uploads ended"
    left = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [one["Key"] for one in left] == ["elsewhere/large"]


def test_a_bucket_that_tears_writes_is_bad(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_half(self: Any, key: str) -> None:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"to")

    monkeypatch.setattr(buckets.Bucket, "_cut_off", takes_half)
    assert seen()["torn writes"] == ("bad", "half of a write became an object")


def test_a_call_that_a_store_lacks_is_said_and_the_rest_goes_on(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(self: Any) -> bool:
        raise PlatformError("NotImplemented")

    monkeypatch.setattr(Bucket, "versioned", lacks)
    found = seen()
    assert found["versions"] == ("warn", "NotImplemented") and found["clock"][0] == "ok"
