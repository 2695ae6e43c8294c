"""A prefix of a bucket that is looked at: each new content of an object is an event once, however many there are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests import servers

from trainlet.core.errors import PlatformError
from trainlet.core.triggers import OBJECT_CREATED, Flow, Parameter, Poll, Subscription
from trainlet_functions.triggers import places, polling, registry, tables

PROJECT = "default"
OWNER = "123456789012"  # moto's only account


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with servers.moto() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.seaweedfs(lambda: tmp_path_factory.mktemp("weed")) as url:
        if url is None:
            pytest.skip("SeaweedFS is not installed")
        yield url


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes a bucket at an endpoint, which the environment then names."""
    clients: list[Any] = []

    def make(endpoint: str) -> Any:
        import boto3

        for name, value in (("ENDPOINT_URL", endpoint), ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
            monkeypatch.setenv(f"AWS_{name}", value)
        client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
        clients.append(client)
        bucket = f"raw-{os.getpid()}-{time.time_ns()}"
        client.create_bucket(Bucket=bucket)
        return client, bucket

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def now(world: Any) -> Any:
    """The world's clock tells the machine's time, which the servers stamp objects with."""
    world.clock.step_wall((time.time_ns() - world.clock.wall_ns()) / 1e9)
    return world


def subscribe(world: Any, bucket: str, **flow: Any) -> None:
    url = f"s3://{bucket}/images"
    spec = Subscription(
        program=world.program(),
        filters=[{"exact": {"type": OBJECT_CREATED, "source": url}}],
        params={"data": Parameter(path="$.data.uri", many=bool(flow))},
        poll=Poll(url=url, every_s=1),
        flow=Flow(**flow),
    )
    world.do(registry.put, PROJECT, "retrain", spec)


def look(world: Any) -> None:
    """Look when the world's clock is past whatever the servers have stamped by now."""
    world.clock.advance(max(2.0, (time.time_ns() - world.clock.wall_ns()) / 1e9 + 1))
    world.engine.poll()
    world.work()


@pytest.mark.parametrize("server", ["moto", "weed"])
def test_each_new_content_below_the_prefix_starts_a_run_once(
    now: Any, at: Any, server: str, request: pytest.FixtureRequest
) -> None:
    client, bucket = at(request.getfixturevalue(server))
    subscribe(now, bucket)
    look(now)
    uris = [f"s3://{bucket}/images/{name}" for name in ("a b+c.png", "sub/\u00e4.png")]
    for uri in uris:
        client.put_object(Bucket=bucket, Key=uri.partition(f"{bucket}/")[2], Body=b"one")
    client.put_object(Bucket=bucket, Key="other/c.png", Body=b"one")
    look(now)
    look(now)
    assert sorted(now.given()) == uris
    client.put_object(Bucket=bucket, Key="images/a b+c.png", Body=b"one")
    look(now)
    assert len(now.runs()) == 2, "the same content again is nothing new"
    client.put_object(Bucket=bucket, Key="images/a b+c.png", Body=b"two")
    look(now)
    assert now.given()[2:] == uris[:1]


def test_what_was_there_before_the_trigger_starts_nothing_until_it_changes(now: Any, at: Any, moto: str) -> None:
    from moto.s3.models import s3_backends

    client, bucket = at(moto)
    client.put_object(Bucket=bucket, Key="images/old.png", Body=b"one")
    stored = s3_backends[OWNER]["aws"].buckets[bucket].keys["images/old.png"]
    stored.last_modified = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    subscribe(now, bucket)
    look(now)
    assert now.runs() == []
    client.put_object(Bucket=bucket, Key="images/old.png", Body=b"two")
    look(now)
    assert now.given() == [f"s3://{bucket}/images/old.png"]


def test_a_listing_in_several_parts_misses_nothing(now: Any, at: Any, moto: str) -> None:
    from moto.s3.models import s3_backends

    _, bucket = at(moto)
    subscribe(now, bucket, window_s=1, max_batch=5000)
    look(now)
    names = [f"images/{number:04d}.png" for number in range(1003)]
    for name in names:
        s3_backends[OWNER]["aws"].put_object(bucket, name, b"x")
    look(now)
    look(now)
    (given,) = now.given()
    assert given == [f"s3://{bucket}/{name}" for name in names]


def test_a_listing_that_is_cut_short_goes_on_there_and_the_next_one_begins_anew(
    now: Any, at: Any, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, bucket = at(moto)
    subscribe(now, bucket)
    look(now)
    for number in range(7):
        client.put_object(Bucket=bucket, Key=f"images/{number}.png", Body=b"x")
    monkeypatch.setattr(polling, "_PART", 2)
    monkeypatch.setattr(polling, "_NOTED_PARTS", 1)
    real, told, most = places.Bucket.list, [], 5

    def listed(place: places.Bucket, after: str = "") -> Iterator[places.Found]:
        for found in real(place, after):
            if len(told) == most:
                raise PlatformError("the connection was lost")
            told.append(found.key[7])
            yield found

    monkeypatch.setattr(places.Bucket, "list", listed)
    look(now)
    assert "".join(told) == "01234" and "the connection was lost" in now.trigger().reason
    client.put_object(Bucket=bucket, Key="images/00.png", Body=b"x")
    told.clear()
    most = 100
    look(now)
    assert "".join(told) == "456", "it went on after the last part that was taken in"
    told.clear()
    look(now)
    assert "".join(told) == "00123456"
    assert sorted(now.given()) == sorted(f"s3://{bucket}/images/{name}.png" for name in ("00", *range(7)))


def test_a_bucket_that_is_not_there_is_told_and_looked_at_again(now: Any, at: Any, moto: str) -> None:
    client, bucket = at(moto)
    subscribe(now, f"{bucket}-later")
    look(now)
    assert f"s3://{bucket}-later/images cannot be listed" in now.trigger().reason
    client.create_bucket(Bucket=f"{bucket}-later")
    client.put_object(Bucket=f"{bucket}-later", Key="images/a.png", Body=b"x")
    look(now)
    look(now)
    assert now.trigger().reason == "" and len(now.runs()) == 1


def test_a_place_of_any_size_is_taken_in_parts_and_never_held_as_a_whole(
    now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, parts = 0, []

    class Endless:
        settle_s = skew_s = 0.0
        resumes = False

        def list(self, after: str = "") -> Iterator[places.Found]:
            nonlocal told
            for number in range(3210):
                told += 1
                yield places.Found(f"images/{number}.png", 1, "mark", 0)

        def content(self, found: places.Found) -> str:
            return found.mark

        def about(self, found: places.Found) -> dict[str, Any]:
            return {"uri": found.key}

    real = polling._take_part

    def taken(*given: Any) -> int:
        parts.append(len(given[-1]))
        assert told == sum(parts), "more was listed than is being looked at"
        return real(*given)

    monkeypatch.setattr(places, "open_place", lambda url: Endless())
    monkeypatch.setattr(polling, "_take_part", taken)
    subscribe(now, "huge")
    look(now)
    look(now)
    assert max(parts) == polling._PART and sum(parts) == told == 2 * 3210
    with now.database.read() as tx:
        assert len(tx.all(tables.polled.select())) == 3210
