"""Numbers beyond 64 bits, which no engine and no array of machine numbers holds, in every solver."""

from __future__ import annotations

import pytest

from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, names
from jigsaw_opt.solvers.solve import solve
from tests.extreme_instances import extreme_instance


@pytest.mark.parametrize("solver", names())
@pytest.mark.parametrize("seed", [11, 142])
def test_products_beyond_64_bits_keep_a_checked_plan_and_an_honest_bound(solver: str, seed: int) -> None:
    instance = extreme_instance(seed)
    if find(solver).unsupported(instance) is not None:
        pytest.skip(f"{solver} does not take a {instance.horizon} horizon")
    result = solve(instance, solver, Options(workers=1, work_limit=0.1))
    assert result.objective is not None
    assert result.bound <= result.objective
