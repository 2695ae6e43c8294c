"""How a process reaches the platform: the typed HTTP client, the start of the embedded platform, the object stores.

This room knows the wire messages and nothing behind them: not how the API keeps its state, not how a step is written.
It starts the embedded platform as a process by module name and never imports it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainlet.client.errors import ApiUnreachable, FencedError, ProtocolMismatch, TakenError

if TYPE_CHECKING:
    from trainlet.client.http import Client as Client
    from trainlet.core.settings import Settings

# Importing httpx imports its command line too (click, rich, pygments: 290 of 470 ms), unless that cannot be found.
if "httpx" not in sys.modules:
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

__all__ = ["ApiUnreachable", "FencedError", "ProtocolMismatch", "TakenError", "connect"]


def connect(settings: Settings) -> Client:
    """Return a client of the API that the settings name, else of this home's embedded platform (started on demand)."""
    from trainlet.client import embedded
    from trainlet.client.http import Client

    if settings.api is not None:
        return Client(settings.api, settings.token or settings.token_file)
    return embedded.connect(settings)
