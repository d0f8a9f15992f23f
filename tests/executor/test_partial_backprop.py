"""Networks of many kinds trained by partial backpropagation: as DDP at full depth, as the definition at any level."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from partial_networks import CASES
from partial_training import require_the_definition, require_the_same_as_ddp, trainings

from jigsaw_opt.executor.processes import run_group

# One process of pytest runs them all, as each would do the trainings for itself.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trainings by partial backpropagation")]

AMONG_THREE = ["skips"]
"""The network that three processes train, too: where sums of three shares round, they do so in any network."""
EVERY = [(2, name) for name in CASES] + [(3, name) for name in AMONG_THREE]


@cache
def found(processes: int) -> list[dict[str, Any]]:
    """By rank and network, what its trainings came to."""
    return run_group(trainings, processes, list(CASES) if processes == 2 else AMONG_THREE)


@pytest.mark.parametrize(("processes", "name"), EVERY)
def test_at_full_depth_training_equals_distributed_data_parallel(processes: int, name: str) -> None:
    require_the_same_as_ddp(found(processes), name)


@pytest.mark.parametrize(("processes", "name"), EVERY)
def test_partial_gradients_are_the_mean_over_contributors_and_all_ranks_agree(processes: int, name: str) -> None:
    require_the_definition(found(processes), name)
