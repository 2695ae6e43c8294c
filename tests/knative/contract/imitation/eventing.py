"""A stand-in for a broker with its Triggers: filters, delivery with retries and backoff, dead letters.

It acknowledges when it has the event, as a broker on Kafka does, and delivers at least once after that. With `oidc` it takes
events only of the training API and of `sources`, and gives each Trigger an identity that it shows to whoever has an audience.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from imitation.jobs import JobSinks
from imitation.kubernetes_api import KubernetesApi
from imitation.serving import Serving
from trainlet.core.events import Event
from trainlet_functions.triggers import filters

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
        self.sources: set[str] = set()  # service accounts of a namespace that a policy of an admin's own lets in
        self.delivered: list[tuple[str, int]] = []
        self.dead: list[str] = []
        self.accepted: list[tuple[dict[str, str], bytes]] = []
        self.lost = 0
        self.duplicate = False  # deliver everything twice
        self.retries: int | None = None  # fewer than a Trigger says
        self.lossy = False  # acknowledge everything and deliver nothing
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()
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
            if filters.compile(trigger["spec"]["filters"]).matches(Event(attributes)):
                for _ in range(2 if self.duplicate else 1):
                    arguments = (namespace, trigger, headers, body)
                    threading.Thread(target=self._deliver, args=arguments, daemon=True).start()

    def _lets_in(self, namespace: str, broker: str, authorization: str) -> bool:
        """Say whether a sender may send, by its token and the policy that `trainlet install` makes."""
        sender = self._api.tokens.get(authorization.removeprefix("Bearer "))
        audience = f"eventing.knative.dev/broker/{namespace}/{broker}"
        accounts = {("trainlet", "trainlet-api"), *((namespace, account) for account in self.sources)}
        allowed = not self.oidc or (sender is not None and sender[:2] in accounts and sender[3] == audience)
        self.refused += not allowed
        return allowed

    def _identity(self, namespace: str, trigger: dict[str, Any], to: dict[str, Any]) -> dict[str, str]:
        audience = to.get("audience")
        if not self.oidc or audience is None:
            return {}
        name = trigger["metadata"]["name"]
        account = f"{name}-oidc-eventing.knative.dev-trigger"
        path = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/{name}"
        self._api.status(path, {"auth": {"serviceAccountName": account}})
        return {"authorization": f"Bearer {self._api.token(namespace, account, audience=audience)}"}

    def _deliver(self, namespace: str, trigger: dict[str, Any], headers: dict[str, str], body: bytes) -> None:
        delivery, subscriber = trigger["spec"]["delivery"], trigger["spec"]["subscriber"]
        retries = delivery["retry"] if self.retries is None else self.retries
        status = self._insist(retries, delivery, namespace, trigger, subscriber, headers, body)
        if 200 <= status < 300:
            return
        self.dead.append(headers["ce-id"])
        name = subscriber["ref"]["name"] if "ref" in subscriber else subscriber["uri"]
        told = {**headers, "ce-knativeerrorcode": str(status), "ce-knativeerrordest": name}
        self._insist(delivery["retry"], delivery, namespace, trigger, delivery["deadLetterSink"], told, body)

    def _insist(
        self,
        retries: int,
        delivery: dict[str, Any],
        namespace: str,
        trigger: dict[str, Any],
        to: dict[str, Any],
        headers: dict[str, str],
        body: bytes,
    ) -> int:
        """Send until it is taken or refused for good; returns the last status."""
        timeout_s, backoff_s = (_seconds(delivery[name]) / self._speed for name in ("timeout", "backoffDelay"))
        status = 0
        for number in range(retries + 1):
            if "uri" in to:
                status = self._post(namespace, trigger, to, headers, body)
            elif to["ref"]["kind"] == "JobSink":
                status = self._jobs.request(namespace, to["ref"]["name"], headers, body)
            else:
                sent = {**headers, **self._identity(namespace, trigger, to)}
                status = self._serving.request(namespace, to["ref"]["name"], sent, body, timeout_s)
            self.delivered.append((headers["ce-id"], status))
            if (status and status not in _RETRIED) or self._closed.wait(backoff_s * (number + 1)):
                break
        return status

    def _post(
        self, namespace: str, trigger: dict[str, Any], to: dict[str, Any], headers: dict[str, str], body: bytes
    ) -> int:
        """Send to a URL, with the identity of the Trigger where it has an audience; 0: it was not reached."""
        sent = {**headers, **self._identity(namespace, trigger, to), "Prefer": "reply"}
        try:
            answer = httpx.post(to["uri"], content=body, headers=sent, timeout=5.0, trust_env=False)
        except httpx.TransportError:
            return 0
        return 502 if answer.is_success and answer.content else answer.status_code  # a body must be a CloudEvent

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
