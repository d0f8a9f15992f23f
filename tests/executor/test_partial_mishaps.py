"""Passes that fail, run again or differ between processes give right gradients or an error, and never wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_mishaps import mishaps  # noqa: E402

from jigsaw_opt.executor.processes import run_group  # noqa: E402


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(mishaps, 2)


@pytest.mark.parametrize("loop", ["experts", "checkpointed", "two models", "failures"])
def test_gradients_are_means_over_contributors(found: list[dict[str, Any]], loop: str) -> None:
    assert all(len(rank[loop]) >= 2 and max(rank[loop]) <= 1e-5 for rank in found)


def test_gradients_follow_the_type_of_parameters(found: list[dict[str, Any]]) -> None:
    assert all(rank["double"] <= 1e-13 for rank in found)


def test_levels_that_differ_between_processes_are_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        differing, elsewhere, hooked = rank["refused"]
        assert "have other levels" in differing and "have other levels" in elsewhere
        assert "optimisers step after backward()" in hooked
