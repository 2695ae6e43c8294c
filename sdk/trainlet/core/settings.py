"""Settings from the environment: read once at the edge, passed on as values.

`TRAINLET_HOME` (default: the user's data directory), `TRAINLET_API` and `TRAINLET_TOKEN` (a remote training API), or
`TRAINLET_TOKEN_FILE` (a token that somebody renews, as Kubernetes does for a pod), `TRAINLET_PROJECT`, and for the API
process the knobs of `Limits`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from trainlet.core.errors import UserError
from trainlet.core.models import Value


class Limits(Value):
    """Times, in seconds, that decide how fast the platform notices and how long it waits.

    `lease_s` is the right of a worker to its attempt, renewed every `heartbeat_s`. `orphan_s` is how long a local
    worker goes on when the API is gone. `idle_s` is when the embedded platform stops itself, `warm_s` when an idle
    local worker does. `announce_s` is when a dispatched task that nobody claimed is announced again. `events_kept_s` is
    how long an event is known, so that the same again changes nothing: longer than any broker or store tries.
    """

    lease_s: float = Field(default=15.0, gt=0)
    heartbeat_s: float = Field(default=2.0, gt=0)
    dispatcher_lease_s: float = Field(default=60.0, gt=0)
    orphan_s: float = Field(default=90.0, gt=0)
    idle_s: float = Field(default=900.0, gt=0)
    warm_s: float = Field(default=60.0, gt=0)
    announce_s: float = Field(default=10.0, gt=0)
    events_kept_s: float = Field(default=35 * 24 * 3600.0, ge=32 * 24 * 3600.0)
    body_bytes: int = Field(default=16 * 1024 * 1024, gt=0)


class Settings(Value):
    """Where the platform of this process is."""

    home: Path
    api: str | None = None
    token: str | None = None
    token_file: Path | None = None
    project: str = "default"
    limits: Limits = Limits()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment; raises UserError that names the variable with a wrong value."""
        env = os.environ if environ is None else environ
        limits: dict[str, str] = {}
        for field in Limits.model_fields:
            value = env.get(f"TRAINLET_{field.upper()}")
            if value is not None:
                limits[field] = value
        api = env.get("TRAINLET_API") or None
        if api is not None and not api.startswith(("http://", "https://")):
            raise UserError(
                f"TRAINLET_API={api!r} is no URL. Write it as https://HOST or http://HOST:PORT, or unset it."
            )
        token_file = env.get("TRAINLET_TOKEN_FILE")
        home = env.get("TRAINLET_HOME")
        if home is None:
            import platformdirs

            home = platformdirs.user_data_dir("trainlet", appauthor=False)
        try:
            return cls(
                home=Path(home).expanduser().absolute(),
                api=api,
                token=env.get("TRAINLET_TOKEN") or None,
                token_file=Path(token_file).absolute() if token_file else None,
                project=env.get("TRAINLET_PROJECT") or "default",
                limits=Limits.model_validate(limits),
            )
        except ValidationError as error:
            first = error.errors()[0]
            name = "TRAINLET_" + str(first["loc"][-1]).upper()
            raise UserError(
                f"{name}={env.get(name)!r} is not valid: {first['msg']}. Correct it or unset it."
            ) from error
