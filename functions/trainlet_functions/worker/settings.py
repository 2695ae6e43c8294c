"""What a worker is told by its parent or its pod, read once from the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.settings import Limits, Settings


class WorkerSettings(Value):
    """One worker: which function it serves, for whom, and where it finds the API."""

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
        worker = env.get("TRAINLET_WORKER_ID") or env.get("HOSTNAME") or f"worker-{os.getpid()}"
        platform_file = env.get("TRAINLET_PLATFORM_FILE")
        return cls(
            api=need("TRAINLET_API"),
            token=need("TRAINLET_WORKER_TOKEN"),
            worker=worker,
            project=need("TRAINLET_PROJECT"),
            function=need("TRAINLET_FUNCTION"),
            public_key=need("TRAINLET_PUBLIC_KEY"),
            home=general.home,
            folder=Path(env.get("TRAINLET_WORKER_DIR") or general.home / "workers" / worker),
            limits=general.limits,
            port=int(env.get("PORT") or 0),
            platform_file=Path(platform_file) if platform_file else None,
        )

    def current_api(self) -> str:
        """Return the API's URL of now: an embedded platform that was started again may have moved."""
        if self.platform_file is not None:
            try:
                return str(json.loads(self.platform_file.read_text())["url"])
            except (OSError, ValueError, KeyError):
                pass
        return self.api
