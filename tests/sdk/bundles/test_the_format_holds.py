from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlet.core import bundles as format_
from trainlet.core.errors import PlatformError

NAMES = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}){0,2}\.py", fullmatch=True)
FILES = st.dictionaries(NAMES, st.binary(max_size=300), max_size=5)
SAMPLE = {"step.py": b"def train():\n    return 1\n" * 50, "trainlet.json": b"{}"}


@given(FILES)
@settings(max_examples=60, deadline=None)
def test_what_is_packed_is_unpacked_and_named_by_its_content(files: dict[str, bytes]) -> None:
    digest, data = format_.pack(files)
    assert format_.unpack(data) == files
    assert format_.digest_of(data) == digest
    backwards = dict(reversed(files.items()))
    assert format_.pack(backwards) == (digest, data)


@given(FILES, NAMES, st.binary(max_size=20))
@settings(max_examples=60, deadline=None)
def test_another_file_or_other_content_has_another_digest(files: dict[str, bytes], name: str, content: bytes) -> None:
    changed = {**files, name: content}
    assert (format_.content_digest(changed) == format_.content_digest(files)) == (changed == files)


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=400, deadline=None)
def test_a_damaged_bundle_is_refused_in_words_or_has_another_digest(at: int, mask: int) -> None:
    digest, data = format_.pack(SAMPLE)
    damaged = bytearray(data)
    damaged[at % len(data)] ^= mask
    try:
        files = format_.unpack(bytes(damaged))
    except PlatformError:
        return
    assert files == SAMPLE or format_.content_digest(files) != digest


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_bundle_that_was_cut_off_is_refused_in_words(at: int) -> None:
    data = format_.pack(SAMPLE)[1]
    with pytest.raises(PlatformError, match="damaged"):
        format_.unpack(data[: at % len(data)])


@pytest.mark.parametrize("path", ["../out.py", "/out.py", "a/../../out.py", "a\\out.py"])
def test_a_path_outside_of_the_bundle_is_refused(tmp_path: Path, path: str) -> None:
    digest, data = format_.pack({path: b"", "trainlet.json": b"{}"})
    with pytest.raises(PlatformError, match="no plain relative file"):
        format_.extract(data, digest, tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_both_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    digest, data = format_.pack({"a": b"", "a/b.py": b"", "trainlet.json": b"{}"})
    with pytest.raises(PlatformError, match="'a' both as a file and as a folder"):
        format_.extract(data, digest, tmp_path / "target")
    assert list(tmp_path.iterdir()) == []
