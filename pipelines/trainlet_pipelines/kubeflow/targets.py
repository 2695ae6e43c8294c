"""Where a compiled pipeline runs: images, the training API, and Secrets by name. Nothing here is a secret itself."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.models import Value


class Target(Value):
    """Where a compiled pipeline runs.

    `image` waits for GPU steps and evaluates conditions; `step_image` runs CPU steps that name no image of their own.
    `api` is the training API as the pods reach it (`dashboard`: as people do), `token_secret` the Secret that holds its
    token. With `pod_token` there is no such Secret: each pod uses a token of its own service account, which a PodDefault
    of the namespace mounts (`trainlet install --pod-defaults`). `store_secret` names a Secret with AWS_ACCESS_KEY_ID and
    AWS_SECRET_ACCESS_KEY for an S3 store. `transport_retries` is how often KFP starts a dispatch pod again that could not
    reach the API; what the user's code does is never repeated by it.
    """

    image: str = "trainlet/dispatch:latest"
    step_image: str = "trainlet/worker:latest"
    api: str | None = None
    dashboard: str | None = None
    token_secret: str | None = "trainlet-token"  # noqa: S105 - the name of a Secret, not its content
    token_key: str = "token"  # noqa: S105
    pod_token: bool = False
    store_secret: str | None = None
    project: str | None = None
    environment: dict[str, str] = Field(default={}, description="plain variables for every pod")
    transport_retries: int = Field(default=2, ge=0, le=20)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.pod_token and self.token_secret is not None and "token_secret" in self.model_fields_set:
            raise ValueError("pod_token and token_secret are two ways to the same API: leave one out")
        return self

    def variables(self) -> dict[str, str]:
        """Return the plain environment variables of every pod."""
        known = {"TRAINLET_API": self.api, "TRAINLET_DASHBOARD": self.dashboard, "TRAINLET_PROJECT": self.project}
        return {**{name: value for name, value in known.items() if value is not None}, **self.environment}

    def secrets(self) -> list[tuple[str, dict[str, str]]]:
        """Return the Secrets that every pod reads: (name, key to variable)."""
        found: list[tuple[str, dict[str, str]]] = []
        if self.token_secret is not None and not self.pod_token:
            found.append((self.token_secret, {self.token_key: "TRAINLET_TOKEN"}))
        if self.store_secret is not None:
            keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
            found.append((self.store_secret, {key: key for key in keys}))
        return found


def of(value: Any) -> Target:
    """Return a Target from one, from a mapping of its fields, or from None; UserError says which field is wrong."""
    if isinstance(value, Target):
        return value
    try:
        return Target.model_validate(value or {})
    except ValidationError as error:
        raise UserError("\n".join(_sentence(one) for one in error.errors())) from None


def _sentence(error: Any) -> str:
    field = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"A target has no field {field!r}. {nearest(field, list(Target.model_fields))}"
    message = error["msg"].removeprefix("Value error, ")
    return f"The target's {field} is {error['input']!r}: {message}." if field else f"The target is wrong: {message}."
