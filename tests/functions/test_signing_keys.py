"""A signing key is one process's own, or a Secret's file in a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlet.core.errors import PlatformError
from trainlet_functions.signatures import Signer, verify


def test_a_key_that_is_made_is_found_again(tmp_path: Path) -> None:
    made = Signer.load(tmp_path / "signing.key")
    again = Signer.load(tmp_path / "signing.key")
    assert verify(made.public_key, again.sign(b"data"), b"data")
    assert (tmp_path / "signing.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("mode", "good"), [(0o400, True), (0o440, True), (0o460, False), (0o444, False)])
def test_a_key_may_be_read_by_a_pods_group_and_by_nobody_else(tmp_path: Path, mode: int, good: bool) -> None:
    path = tmp_path / "signing.key"
    Signer.load(path)
    path.chmod(mode)
    if good:
        Signer.load(path)
    else:
        with pytest.raises(PlatformError, match="chmod 600"):
            Signer.load(path)
