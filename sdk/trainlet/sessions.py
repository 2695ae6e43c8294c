"""A process's connection to one platform: the client, the store, and what was registered already.

It must not know what a run is; `trainlet.runs` asks it to make functions known and for a dispatcher's lease.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainlet.core import wire
from trainlet.core.errors import ConflictError, PlatformError
from trainlet.core.settings import Settings

if TYPE_CHECKING:
    from trainlet.bundles.origins import Origins
    from trainlet.client.http import Client
    from trainlet.core.protocols import ObjectStore
    from trainlet.steps import Step


def current(settings: Settings) -> Session:
    """Return this process's connection to the platform of these settings: the one from before while it answers."""
    session = _known(settings)
    if not session.alive():
        _known.cache_clear()
        session = _known(settings)
    return session


@functools.lru_cache(maxsize=4)
def _known(settings: Settings) -> Session:
    return Session(settings)


class Session:
    """A connection to the platform and its store."""

    def __init__(self, settings: Settings) -> None:
        from trainlet.client import connect
        from trainlet.client.stores import open_store

        self.settings = settings
        self.client: Client = connect(settings)
        self.info = self.client.get_info()
        self.store: ObjectStore = open_store(self.info.store_url)
        self._registered: dict[str, Origins | None] = {}

    def alive(self) -> bool:
        """Say whether the platform of this connection still answers."""
        try:
            self.client.ping()
        except PlatformError:
            return False
        return True

    def lease(self) -> wire.DispatcherLease:
        """Return a fresh dispatcher's lease."""
        return wire.DispatcherLease(
            id=f"dispatcher-{secrets.token_hex(6)}", lease_s=self.settings.limits.dispatcher_lease_s
        )

    def origins(self, digest: str) -> Origins | None:
        """Return where the code of a function stands that this process registered from a script or notebook."""
        return self._registered.get(digest)

    def register(self, steps: Mapping[str, Step[Any, Any]]) -> None:
        """Upload bundles that the store does not have, register the functions, and warn of versions that differ."""
        from trainlet import versions
        from trainlet.core import bundles

        for step in steps.values():
            spec = step.spec()
            if spec.digest() in self._registered:
                continue
            bundle = step.bundle()
            if bundle.digest != spec.bundle:
                raise ConflictError(f"The source of {step.name} changed while it was being submitted. Submit it again.")
            key = bundles.bundle_key(bundle.digest)
            if not self.store.exists(key):
                with contextlib.suppress(FileExistsError):
                    self.store.create(key, bundle.data)
            if spec.packages_lock is None:
                for sentence in versions.differences(bundle.imports, bundle.versions, spec.python, self.info):
                    warnings.warn(f"{step.name}: {sentence}", stacklevel=5)
            self.client.put_function(spec)
            self._registered[spec.digest()] = bundle.origins
