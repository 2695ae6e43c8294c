"""A process with thousands of open files, as data loaders make them, can still wait for one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from trainlet.core import descriptors

BEYOND = 1500  # select.select takes numbers below 1024 only


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose reading end has a large number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, BEYOND + 100)), hard))
    read, write = os.pipe()
    far = os.dup2(read, BEYOND)
    os.close(read)
    yield far, write
    os.close(far)
    os.close(write)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_with_a_large_number_is_waited_for(pipe: tuple[int, int]) -> None:
    far, write = pipe
    assert descriptors.readable([far], 0) == []
    os.write(write, b"x")
    assert descriptors.readable([far]) == [far]


def test_the_end_of_a_pipe_counts_as_readable() -> None:
    read, write = os.pipe()
    os.close(write)
    assert descriptors.readable([read], 10) == [read]
    os.close(read)
