"""The executor's tests run on one thread, so that they cost and give the same wherever they run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
"""Without PyTorch (pip install 'jigsaw-opt[torch]') nothing here can be imported."""


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_group_is_left() -> Iterator[None]:
    """Fail the test that leaves a process group behind, on which others would run."""
    yield
    import torch.distributed as dist

    assert not dist.is_initialized()
