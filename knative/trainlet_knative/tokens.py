"""Who the training API is to others: tokens of its own service account, each good for one audience only.

A broker that checks senders (OIDC) takes a token that was made for it alone. Projects, and so brokers, come and go while
the API runs: Kubernetes is asked for each token when it is needed, instead of mounting one for each.
"""

from __future__ import annotations

import threading

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.errors import PlatformError
from trainlet_knative.connections import Kubernetes, path

_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ACCOUNT = "system:serviceaccount:"
LIFE_S = 3600
_RENEW = 0.8  # of a token's life


class OwnTokens:
    """Asks Kubernetes for tokens of this process's own service account, and keeps each for most of its life."""

    def __init__(self, kubernetes: Kubernetes, *, clock: Clock | None = None) -> None:
        self._kubernetes = kubernetes
        self._clock = clock or SystemClock()
        self._path: str | None = None
        self._known: dict[str, tuple[int, str]] = {}  # audience -> until when, token
        self._lock = threading.Lock()

    def get(self, audience: str) -> str:
        """Return a token for an audience. Raises PlatformError when Kubernetes gives none."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            until_ns, token = self._known.get(audience, (0, ""))
            if now_ns < until_ns:
                return token
            asked = {"audiences": [audience], "expirationSeconds": LIFE_S}
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": asked}
            made = self._kubernetes.create(self._place(), body)
            life_s = made.get("spec", {}).get("expirationSeconds") or LIFE_S  # a cluster may allow less
            token = str(made["status"]["token"])
            self._known[audience] = (now_ns + int(life_s * _RENEW * 1e9), token)
            return token

    def forget(self, audience: str) -> None:
        """Ask anew for the next token: this one was refused."""
        with self._lock:
            self._known.pop(audience, None)

    def _place(self) -> str:
        if self._path is None:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            name = str(self._kubernetes.create(_WHO, body)["status"]["userInfo"]["username"])
            namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
            if not name.startswith(_ACCOUNT) or not account:
                raise PlatformError(
                    f"The training API is {name} to Kubernetes, which is no service account: it has no identity to show to a "
                    "broker. Run it in a pod, or set oidc: false."
                )
            self._path = f"{path('v1', namespace, 'serviceaccounts')}/{account}/token"
        return self._path
