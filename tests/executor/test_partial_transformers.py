"""Models of `transformers` trained by partial backpropagation: as DDP at full depth, as the definition at any level."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")
pytest.importorskip("transformers", reason="transformers is not installed (extra examples)")

from partial_networks import built, loss_of  # noqa: E402
from partial_training import require_the_definition, require_the_same_as_ddp, trainings  # noqa: E402
from transformers_networks import CASES  # noqa: E402

from jigsaw_opt.executor.partial import PartialBackprop  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank and network, what its trainings came to."""
    return run_group(trainings, 2, list(CASES), "transformers_networks")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_transformers_at_full_depth_train_as_ddp(found: list[dict[str, Any]], name: str) -> None:
    require_the_same_as_ddp(found, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_transformers_get_the_mean_over_contributors(found: list[dict[str, Any]], name: str) -> None:
    require_the_definition(found, name)


@pytest.mark.parametrize("name", [name for name in CASES if "checkpointed" not in name])
def test_levels_save_less_and_reach_less(name: str) -> None:
    case, kept, reached = CASES[name], [], []
    model = PartialBackprop(built(case), case.cuts, levels=lambda iteration, worker: 1 + iteration % 3)
    loss_of(case, model, 0, 0).backward()
    model.iteration = 0
    for _ in range(3):
        saved: dict[int, int] = {}

        def pack(tensor: torch.Tensor, saved: dict[int, int] = saved) -> torch.Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = loss_of(case, model, 0, 0)
        loss.backward()
        kept.append(sum(saved.values()))
        reached.append(sum(p.grad is not None for p in model.parameters()))
        model.zero_grad()
    assert kept == sorted(set(kept)) and reached == sorted(set(reached))
