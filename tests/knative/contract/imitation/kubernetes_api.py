"""A stand-in for the Kubernetes API: objects by path, server-side apply, merge patches, lists, tokens and their reviews."""

from __future__ import annotations

import base64
import copy
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


class KubernetesApi:
    """Keeps what an API server keeps, for one client that is trusted."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.lock = threading.RLock()
        self.tokens: dict[str, tuple[str, str, str, str]] = {}  # token -> namespace, service account, pod, audience
        self.away = False  # connections break without an answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self) -> str:
        """Return a kubeconfig for this server."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )

    def token(self, namespace: str, account: str, pod: str = "", audience: str = "trainlet-api") -> str:
        """Make the token that the kubelet would mount into a pod, or that a service account asks for."""
        claims = base64.urlsafe_b64encode(json.dumps({"aud": [audience]}).encode()).decode().rstrip("=")
        token = f"ey.{claims}.{secrets.token_hex(8)}"
        self.tokens[token] = (namespace, account, pod, audience)
        return token

    def put(self, path: str, found: Object) -> None:
        with self.lock:
            self.objects[path] = found

    def get(self, path: str) -> Object | None:
        with self.lock:
            return copy.deepcopy(self.objects.get(path))

    def under(self, folder: str) -> dict[str, Object]:
        """Return the objects of a kind in a namespace."""
        with self.lock:
            return {path: copy.deepcopy(one) for path, one in self.objects.items() if path.rpartition("/")[0] == folder}

    def everywhere(self, group: str, plural: str) -> dict[str, Object]:
        """Return the objects of a kind in all namespaces."""
        with self.lock:
            return {
                path: copy.deepcopy(one)
                for path, one in self.objects.items()
                if path.startswith(group + "/") and path.split("/")[-2] == plural
            }

    def status(self, path: str, status: Object) -> None:
        with self.lock:
            if path in self.objects:
                self.objects[path].setdefault("status", {}).update(status)

    def remove(self, path: str) -> None:
        with self.lock:
            self.objects.pop(path, None)

    # -- requests

    def _apply(self, path: str, wanted: Object) -> Object:
        with self.lock:
            old = self.objects.get(path)
            kept = {} if old is None else {"status": old.get("status", {})}
            generation = 1 if old is None else old["metadata"]["generation"]
            if old is not None and old.get("spec") != wanted.get("spec"):
                generation += 1
            metadata = {
                **(old or {}).get("metadata", {}),
                **wanted["metadata"],
                "generation": generation,
                "managedFields": [{"manager": "trainlet", "operation": "Apply"}],
            }
            self.objects[path] = {**wanted, "metadata": metadata, **kept}
            return copy.deepcopy(self.objects[path])

    def _patch(self, path: str, patch: Object) -> Object | None:
        with self.lock:
            if path not in self.objects:
                return None
            _merge(self.objects[path], patch)
            return copy.deepcopy(self.objects[path])

    def _list(self, path: str, selector: str) -> Object:
        items = []
        for one in self.under(path).values():
            labels = one["metadata"].get("labels", {})
            wanted = [part.partition("=") for part in selector.split(",") if part]
            if all(name in labels and (not equals or labels[name] == value) for name, equals, value in wanted):
                items.append(one)
        return {"kind": "List", "metadata": {}, "items": items}

    def _review(self, body: Object) -> Object:
        known = self.tokens.get(body["spec"]["token"])
        if known is None or known[3] not in body["spec"]["audiences"]:
            why = "unknown token" if known is None else f"token audiences [{known[3]!r}] are invalid"
            return {**body, "status": {"authenticated": False, "error": why}}
        namespace, account, pod, audience = known
        user = {
            "username": f"system:serviceaccount:{namespace}:{account}",
            "extra": {"authentication.kubernetes.io/pod-name": [pod]} if pod else {},
        }
        return {**body, "status": {"authenticated": True, "audiences": [audience], "user": user}}

    def _create(self, path: str, body: Object) -> Object | None:
        if path.endswith("/tokenreviews"):
            return self._review(body)
        if path.endswith("/selfsubjectreviews"):  # there is one client, and it is the training API
            return {**body, "status": {"userInfo": {"username": "system:serviceaccount:trainlet:trainlet-api"}}}
        *_, namespace, _, account, last = path.split("/")
        if last != "token":
            return None
        (audience,) = body["spec"]["audiences"]
        return {**body, "status": {"token": self.token(namespace, account, audience=audience)}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                found = fake.get(parts.path)
                if found is None and parts.path.split("/")[-3] == "namespaces":
                    found = fake._list(parts.path, parse_qs(parts.query).get("labelSelector", [""])[0])
                self.answer(found)

            def do_POST(self) -> None:
                body = self.body()
                if fake.away:
                    self.close_connection = True
                    return
                self.answer(fake._create(urlsplit(self.path).path, body))

            def do_PATCH(self) -> None:
                path, body = urlsplit(self.path).path, self.body()
                apply = self.headers["Content-Type"] == "application/apply-patch+yaml"
                self.answer(fake._apply(path, body) if apply else fake._patch(path, body))

            def do_DELETE(self) -> None:
                self.body()
                path = urlsplit(self.path).path
                found = fake.get(path)
                fake.remove(path)
                self.answer(found)

            def body(self) -> Any:
                return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

            def answer(self, found: Object | None) -> None:
                missing = {"kind": "Status", "message": f"{self.path} not found", "code": 404}
                data = json.dumps(missing if found is None else found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def _merge(target: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
