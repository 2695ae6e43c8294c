"""Secrets that this machine keeps for the embedded platform: 0600 files under the home, or the OS keyring.

A name that the keyring holds has an empty file of that name in `keyring/` of the home, so that nobody waits for a keyring
(which may ask the person) before they have put something there.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from trainlet.core.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")


def variable(name: str) -> str:
    """Return the environment variable that a step finds the secret in: `hf-token` is `HF_TOKEN`."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def check_name(name: str) -> None:
    """Raise UserError for what is not the name of a secret."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is not the name of a secret: letters, digits, '.', '_' and '-'.")


def names(home: Path) -> dict[str, str]:
    """Return where each secret of the home is kept: `file` or `keyring`, by name."""
    found = {path.name: "keyring" for path in _files(home / "keyring")}
    found |= {path.name: "file" for path in _files(home / "secrets")}
    return dict(sorted(found.items()))


def put(home: Path, name: str, value: str, *, in_keyring: bool = False) -> None:
    """Keep a secret, in place of what was kept under its name.

    Raises UserError for a bad name, an empty value, and a keyring that is not there or refuses.
    """
    check_name(name)
    if not value:
        raise UserError(f"The value of the secret {name!r} is empty. Nothing was changed.")
    if in_keyring:
        _in_keyring("set_password", home, name, value)
        _write(home / "keyring" / name, "")
        (home / "secrets" / name).unlink(missing_ok=True)
    else:
        _write(home / "secrets" / name, value)
        _forget_in_keyring(home, name)


def remove(home: Path, name: str) -> None:
    """Forget a secret. Raises UserError when there is none of that name."""
    check_name(name)
    if name not in names(home):
        raise UserError(f"There is no secret {name!r}. Known: {', '.join(names(home)) or 'none'}.")
    _forget_in_keyring(home, name)
    (home / "secrets" / name).unlink(missing_ok=True)


def get(home: Path, name: str) -> str:
    """Return the value of a secret. Raises UserError that says where to put it when it is not there."""
    check_name(name)
    path = home / "secrets" / name
    if path.is_file():
        if path.stat().st_mode & 0o077:
            raise UserError(f"The secret {path} can be read by others. Run: chmod 600 {path}")
        return path.read_text().rstrip("\n")
    if (home / "keyring" / name).is_file():
        value = _in_keyring("get_password", home, name)
        if value:
            return str(value)
    raise UserError(
        f"There is no secret {name!r}. Run: trainlet secrets set {name} (it is kept in {path}), "
        f"or set TRAINLET_SECRET_{variable(name)}."
    )


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []


def _write(path: Path, text: str) -> None:
    """Replace a file of the person's own: it is never there half written, nor for a moment readable by others."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _forget_in_keyring(home: Path, name: str) -> None:
    marker = home / "keyring" / name
    if marker.is_file():
        _in_keyring("delete_password", home, name)
        marker.unlink()


def _in_keyring(what: str, home: Path, name: str, *value: str) -> Any:
    try:
        import keyring
        from keyring.errors import KeyringError, PasswordDeleteError
    except ImportError:
        raise UserError(
            f"The secret {name!r} is in the OS keyring, for which a package is missing: pip install keyring"
        ) from None
    try:
        return getattr(keyring, what)(f"trainlet {home}", name, *value)
    except PasswordDeleteError:
        return None  # somebody removed it in the keyring's own program
    except KeyringError as error:
        raise UserError(
            f"The OS keyring did not give or take the secret {name!r}: {error or type(error).__name__}. Unlock or "
            f"install one, or keep the secret in a file: trainlet secrets set {name}"
        ) from error
