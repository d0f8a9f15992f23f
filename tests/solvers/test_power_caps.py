"""Power caps: methods that ignore them refuse an instance that has some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt import solve
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.phased import solve_phased


@pytest.fixture
def capped(pair: Instance) -> Instance:
    return replace(pair, cluster=replace(pair.cluster, power_caps=(PowerCap("room", ("s0",), 600),)))


@pytest.mark.parametrize("method", ["search", "ilp", "portfolio"])
def test_a_method_that_ignores_caps_refuses_them(capped: Instance, method: str) -> None:
    with pytest.raises(UsageError, match="power cap 'room'"):
        solve(capped, method)


def test_no_phased_plan_is_made_under_caps(capped: Instance) -> None:
    with pytest.raises(UsageError, match="power cap 'room'"):
        solve_phased(capped)
