"""Workers that take turns in one process learn what workers in processes of their own learn."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from distributed_training import DEPTH, RECIPE, flat, rounds, tiny  # noqa: E402
from spb.emulation import Emulation  # noqa: E402

from jigsaw_opt.errors import UsageError  # noqa: E402
from jigsaw_opt.executor.exchange.by_bucket import Averaging  # noqa: E402
from jigsaw_opt.executor.level_schedule import LevelSchedule  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402
from jigsaw_opt.executor.worker import OPTIMISERS  # noqa: E402
from tests.refusals import misuse  # noqa: E402

PLANS = {
    "full": [LevelSchedule(DEPTH, 3, "full").levels(iteration) for iteration in range(8)],
    "staircase": [LevelSchedule(DEPTH, 3, assignment="permutation").levels(iteration) for iteration in range(8)],
    "free": [LevelSchedule(DEPTH, 3, "free", warm_up=2).levels(iteration) for iteration in range(8)],
}
CASES = [("full", Averaging.AVG_W_COUNT)] + [(rule, mean) for rule in ("staircase", "free") for mean in Averaging]


def emulated(plan: list[tuple[int, ...]], averaging: Averaging) -> list[torch.Tensor]:
    own = tiny()
    optimiser = OPTIMISERS[RECIPE.optimiser](own.model.parameters(), **RECIPE.options)
    emulation, states = Emulation(own.model, optimiser, averaging), []
    for iteration, levels in enumerate(plan):
        batches = [own.batch(RECIPE.seed, worker, iteration) for worker in range(len(levels))]
        assert emulation.iterate(levels, batches).shape == (3,)
        states.append(flat(own.model.parameters()))
    return states


def test_parameters_are_those_of_real_processes_after_every_step() -> None:
    found = run_group(rounds, 3, [((0, 1, 2), PLANS[rule], averaging) for rule, averaging in CASES], [])
    for case, (rule, averaging) in enumerate(CASES):
        expected = emulated(PLANS[rule], averaging)
        assert (expected[0] - expected[-1]).abs().max() > 1e-2
        for alone, _, _ in found:
            for real, own in zip(alone[case], expected, strict=True):
                torch.testing.assert_close(own, real, rtol=0, atol=1e-6)


def test_someone_goes_to_full_depth() -> None:
    own = tiny()
    emulation = Emulation(own.model, torch.optim.SGD(own.model.parameters()))
    with pytest.raises(UsageError, match="level 4"):
        emulation.iterate((3, 2), [own.batch(0, worker, 0) for worker in range(2)])


def test_free_levels_keep_one_worker_at_full_depth_and_use_all_others() -> None:
    schedule = LevelSchedule(DEPTH, 3, "free", granularity=2, warm_up=1, seed=5)
    plan = [schedule.levels(iteration) for iteration in range(1 + 2 * 200)]
    assert plan[0] == (DEPTH,) * 3 and plan[1::2] == plan[2::2]
    assert all(max(levels) == DEPTH for levels in plan)
    for worker in range(3):
        assert {levels[worker] for levels in plan} == set(range(1, DEPTH + 1))
    mean = sum(map(sum, plan[1:])) / (len(plan[1:]) * 3 * DEPTH)
    assert mean == pytest.approx((1 + 2 * 2.5 / 4) / 3, abs=0.03)
    pairs = LevelSchedule(DEPTH, 3, "free", min_contributors=2)
    counts = [levels.count(DEPTH) for levels in map(pairs.levels, range(50))]
    assert set(counts) == {2, 3}
    with misuse("out-of-range min_contributors"):
        LevelSchedule(DEPTH, 3, "free", min_contributors=4)
