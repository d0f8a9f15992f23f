"""Networks of many kinds trained by partial backpropagation: as DDP at full depth, as the definition at any level."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_networks import CASES  # noqa: E402
from partial_training import require_the_definition, require_the_same_as_ddp, trainings  # noqa: E402

from jigsaw_opt.executor.processes import run_group  # noqa: E402


@pytest.fixture(scope="module", params=[2, 3])
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """By rank and network, what its trainings came to."""
    return run_group(trainings, request.param, list(CASES))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_at_full_depth_training_equals_distributed_data_parallel(found: list[dict[str, Any]], name: str) -> None:
    require_the_same_as_ddp(found, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_partial_gradients_are_the_mean_over_contributors_and_all_ranks_agree(
    found: list[dict[str, Any]], name: str
) -> None:
    require_the_definition(found, name)
