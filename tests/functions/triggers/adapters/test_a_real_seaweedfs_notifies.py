"""What a real filer of SeaweedFS posts when objects come and go is the event that its shape was recorded as."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests import servers

from trainlet.core.events import Event
from trainlet_functions.triggers import adapters

CONFIG = """
[notification.webhook]
enabled = true
endpoint = "%s"
"""


class Receiver:
    """Collects what is posted to it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def events(self) -> list[Event]:
        """Return the events that a hook would take in."""
        return [one for body in list(self.bodies) for one in adapters.convert("s3", {}, body)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def store(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return an S3 client of a SeaweedFS whose filer posts to the receiver."""
    import boto3

    def folder() -> Path:
        made = tmp_path_factory.mktemp("weed")
        (made / "notification.toml").write_text(CONFIG % receiver.url)
        return made

    with servers.seaweedfs(folder) as url:
        if url is None:
            pytest.skip("SeaweedFS is not installed")
        client = boto3.client(
            "s3", region_name="us-east-1", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test"
        )
        yield client
        client.close()


def wait(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, "SeaweedFS did not tell in time"
        time.sleep(0.05)
    return found


@pytest.mark.timeout(180)
def test_T5_objects_that_come_and_go_are_events_and_the_same_notification_is_the_same_event(
    store: Any, receiver: Receiver
) -> None:
    store.create_bucket(Bucket="digits-raw")
    etag = store.put_object(Bucket="digits-raw", Key="images/a b.png", Body=b"one")["ETag"].strip('"')

    def of(kind: str) -> list[Event]:
        found = [one for one in receiver.events() if one.type == f"com.amazonaws.s3.{kind}"]
        return [one for one in found if one.subject == "images/a b.png"]

    (created, *more) = wait(lambda: of("objectcreated"))
    assert created.source == "s3://digits-raw"
    assert created.data["uri"] == "s3://digits-raw/images/a b.png"
    assert (created.data["etag"], created.data["size_bytes"]) == (etag, 3)
    assert {one.id for one in more} <= {created.id}
    again = [adapters.convert("s3", {}, json.dumps(json.loads(body)).encode()) for body in receiver.bodies]
    assert {one.id for events in again for one in events if one.type == created.type} == {created.id}
    store.put_object(Bucket="digits-raw", Key="images/a b.png", Body=b"two!")
    wait(lambda: {one.data["size_bytes"] for one in of("objectcreated")} == {3, 4})
    assert len({one.id for one in of("objectcreated")}) == 2, "other content is another event"
    store.delete_object(Bucket="digits-raw", Key="images/a b.png")
    wait(lambda: of("objectremoved"))
