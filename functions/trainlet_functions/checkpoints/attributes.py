"""Attributes of an object as its state: for libraries that have no `state_dict`, such as scikit-learn."""

from __future__ import annotations

from typing import Any

from trainlet.core.errors import UserError


class Attributes:
    """The named attributes of an object. Register it; on restore they are set again.

    Without names: every attribute that ends with an underscore and does not begin with one, which is how scikit-learn
    names what an estimator has learned. What an estimator learns later is saved too.
    """

    def __init__(self, owner: Any, *names: str) -> None:
        self._owner = owner
        self._names = names
        if not hasattr(owner, "__dict__"):
            raise UserError(f"Attributes({type(owner).__name__}) has no attributes of its own to save.")

    def state_dict(self) -> dict[str, Any]:
        """Return what is there now."""
        own = vars(self._owner)
        names = self._names or [name for name in own if name.endswith("_") and not name.startswith("_")]
        return {name: own[name] for name in names if name in own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the attributes."""
        for name, value in state.items():
            setattr(self._owner, name, value)
