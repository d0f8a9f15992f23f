"""The executor's tests run on one thread, so that they cost and give the same wherever they run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")
    torch.set_num_threads(1)
