"""What a worker is told by its parent or its pod, read once from the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.settings import Limits, Settings
from trainlet.core.wire import Device
from trainlet_functions.devices import local_inventory
from trainlet_knative.hosts import worker_id


class WorkerSettings(Value):
    """One worker: which function it serves, for whom, and where it finds the API.

    `token_file` holds a token that is renewed under the worker's feet, as Kubernetes does. `devices` are those of this
    pod; None where the API hands them out. A worker that `stays` never leaves because it is idle: somebody else decides.
    `cache` is a folder that outlives this pod and that other pods of the project use too.
    With an `event_audience` events are taken only with a token for it. `revision` is the Knative Revision of this pod.
    """

    api: str
    token: str
    worker: str
    project: str
    function: str
    public_key: str
    home: Path
    folder: Path
    limits: Limits
    port: int = 0
    platform_file: Path | None = None
    token_file: Path | None = None
    devices: tuple[Device, ...] | None = None
    stays: bool = False
    cache: Path | None = None
    event_audience: str | None = None
    revision: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> WorkerSettings:
        """Read the environment; raises UserError that names what is missing."""
        env = os.environ if environ is None else environ

        def need(name: str) -> str:
            value = env.get(name)
            if not value:
                raise UserError(
                    f"{name} is not set: a worker is started by the training API or by Knative, not by hand."
                )
            return value

        general = Settings.from_environment(env)
        token_file = env.get("TRAINLET_WORKER_TOKEN_FILE")
        in_pod = "TRAINLET_NAMESPACE" in env
        worker = worker_id(env) if in_pod else env.get("TRAINLET_WORKER_ID") or f"worker-{os.getpid()}"
        platform_file = env.get("TRAINLET_PLATFORM_FILE")
        return cls(
            api=need("TRAINLET_API"),
            token="" if token_file else need("TRAINLET_WORKER_TOKEN"),
            token_file=Path(token_file) if token_file else None,
            worker=worker,
            project=need("TRAINLET_PROJECT"),
            function=need("TRAINLET_FUNCTION"),
            public_key=need("TRAINLET_PUBLIC_KEY"),
            home=general.home,
            folder=Path(env.get("TRAINLET_WORKER_DIR") or general.home / "workers" / worker),
            limits=general.limits,
            port=int(env.get("PORT") or 0),
            platform_file=Path(platform_file) if platform_file else None,
            devices=tuple(local_inventory(env).devices()) if in_pod else None,
            stays=in_pod,
            cache=Path(env["TRAINLET_CACHE"]) if env.get("TRAINLET_CACHE") else None,
            revision=env.get("K_REVISION") or None,
            event_audience=env.get("TRAINLET_EVENT_AUDIENCE") or None,
        )

    def current_api(self) -> str:
        """Return the API's URL of now: an embedded platform that was started again may have moved."""
        if self.platform_file is not None:
            try:
                return str(json.loads(self.platform_file.read_text())["url"])
            except (OSError, ValueError, KeyError):
                pass
        return self.api
