"""The executor's tests run on one thread, so that they cost and give the same wherever they run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
"""Without PyTorch (pip install 'jigsaw-opt[torch]') nothing here can be imported."""


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
