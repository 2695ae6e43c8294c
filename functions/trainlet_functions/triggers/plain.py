"""The plainest paths: JSON Pointers and simple JSONPaths."""

from __future__ import annotations

from typing import Any

from trainlet.core.errors import UserError
from trainlet.core.triggers import Parameter


def value(name: str, parameter: Parameter, form: dict[str, Any]) -> Any:
    """Return what an event in its JSON form gives to a parameter; raises UserError."""
    if parameter.path is None:
        return parameter.default
    found: Any = form
    parts = parameter.path.removeprefix("$").replace("/", ".").strip(".")
    for part in parts.split(".") if parts else ():
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif parameter.has_default:
            return parameter.default
        else:
            raise UserError(f"Parameter {name}: {parameter.path} finds nothing in the event. Give it a default.")
    return found
