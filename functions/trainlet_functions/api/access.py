"""`/v1/tokens`: who may use this API. Only an admin makes tokens, and a token is shown once."""

from __future__ import annotations

from trainlet.core import wire
from trainlet.core.errors import UserError
from trainlet_functions.api.routes import Routes
from trainlet_functions.platform import Platform
from trainlet_functions.state import tokens

routes = Routes()


@routes.add("POST", "/v1/tokens", "admin", body=wire.TokenCreate, reply=wire.Token, statuses=(201,))
def create(platform: Platform, body: wire.TokenCreate) -> tuple[wire.Token, int]:
    """Make a token for the people or programs of a project."""
    if body.admin and body.events:
        raise UserError("A token is an admin's or for events only. Leave one of the two out.")
    scopes = {"client", "admin"} if body.admin else {"events" if body.events else "client"}
    with platform.database.write() as tx:
        expires_ns = None if body.expires_s is None else tx.now_ns + round(body.expires_s * 1e9)
        token = tokens.create(tx, body.project, scopes, body.label, expires_ns=expires_ns)
    return wire.Token(token=token, project=body.project, label=body.label), 201
