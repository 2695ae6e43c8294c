"""A stand-in for a broker with its Triggers: exact filters, delivery with retries and backoff, dead letters.

It acknowledges when it has the event, as a broker on Kafka does, and delivers at least once after that. With `oidc` it takes
events only of the training API, and gives each Trigger an identity that it shows to whoever has an audience.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from imitation.jobs import JobSinks
from imitation.kubernetes_api import KubernetesApi
from imitation.serving import Serving

_RETRIED = frozenset({404, 408, 409, 429, *range(500, 600)})


class Broker:
    """Every namespace's broker, at `/<namespace>/<broker>`."""

    def __init__(
        self, api: KubernetesApi, serving: Serving, jobs: JobSinks, speed: float, *, oidc: bool = False
    ) -> None:
        self._api = api
        self._serving = serving
        self._jobs = jobs
        self._speed = speed
        self.oidc = oidc
        self.refused = 0  # events of senders that are not known
        self.delivered: list[tuple[str, int]] = []
        self.dead: list[str] = []
        self.accepted: list[tuple[dict[str, str], bytes]] = []
        self.lost = 0
        self.duplicate = False  # deliver everything twice
        self.retries: int | None = None  # fewer than a Trigger says
        self.lossy = False  # acknowledge everything and deliver nothing
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answers_to(self, task: str) -> list[int]:
        """Return what the subscribers answered to the events of a task."""
        ids = {headers["ce-id"] for headers, _ in self.accepted if headers["ce-subject"] == task}
        return [status for event_id, status in self.delivered if event_id in ids]

    def _accept(self, namespace: str, headers: dict[str, str], body: bytes) -> None:
        if self.lossy:
            self.lost += 1
            return
        self.accepted.append((headers, body))
        attributes = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
        triggers = self._api.under(f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers")
        for trigger in triggers.values():
            filters = [one["exact"] for one in trigger["spec"]["filters"]]
            if all(attributes.get(name) == value for exact in filters for name, value in exact.items()):
                for _ in range(2 if self.duplicate else 1):
                    arguments = (namespace, trigger, headers, body)
                    threading.Thread(target=self._deliver, args=arguments, daemon=True).start()

    def _lets_in(self, namespace: str, broker: str, authorization: str) -> bool:
        """Say whether a sender may send, by its token and the policy that `trainlet install` makes."""
        sender = self._api.tokens.get(authorization.removeprefix("Bearer "))
        audience = f"eventing.knative.dev/broker/{namespace}/{broker}"
        allowed = not self.oidc or sender == ("trainlet", "trainlet-api", "", audience)
        self.refused += not allowed
        return allowed

    def _identity(self, namespace: str, trigger: dict[str, Any]) -> dict[str, str]:
        audience = trigger["spec"]["subscriber"].get("audience")
        if not self.oidc or audience is None:
            return {}
        name = trigger["metadata"]["name"]
        account = f"{name}-oidc-eventing.knative.dev-trigger"
        path = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/{name}"
        self._api.status(path, {"auth": {"serviceAccountName": account}})
        return {"authorization": f"Bearer {self._api.token(namespace, account, audience=audience)}"}

    def _deliver(self, namespace: str, trigger: dict[str, Any], headers: dict[str, str], body: bytes) -> None:
        delivery, reference = trigger["spec"]["delivery"], trigger["spec"]["subscriber"]["ref"]
        function = reference["name"]
        timeout_s, backoff_s = (_seconds(delivery[name]) / self._speed for name in ("timeout", "backoffDelay"))
        status = 0
        retries = delivery["retry"] if self.retries is None else self.retries
        for number in range(retries + 1):
            if reference["kind"] == "JobSink":
                status = self._jobs.request(namespace, function, headers, body)
            else:
                sent = {**headers, **self._identity(namespace, trigger)}
                status = self._serving.request(namespace, function, sent, body, timeout_s)
            self.delivered.append((headers["ce-id"], status))
            if status not in _RETRIED:
                break
            time.sleep(backoff_s * (number + 1))
        if status >= 300:
            self.dead.append(headers["ce-id"])
            told = {**headers, "ce-knativeerrorcode": str(status), "ce-knativeerrordest": function}
            with contextlib.suppress(httpx.TransportError):  # the test is over
                httpx.post(delivery["deadLetterSink"]["uri"], content=body, headers=told, timeout=5.0)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {
                    name.lower(): value
                    for name, value in self.headers.items()
                    if name.lower().startswith("ce-") or name.lower() == "content-type"
                }
                namespace, name = self.path.split("/")[1:3]
                known = broker._lets_in(namespace, name, self.headers.get("Authorization", ""))
                if known:
                    broker._accept(namespace, headers, body)
                self.send_response(202 if known else 401)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def _seconds(text: str) -> float:
    match = re.fullmatch(r"PT(\d+(?:\.\d+)?)S", text)
    assert match is not None, text
    return float(match[1])
