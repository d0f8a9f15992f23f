"""The load inequalities hold where a GPU holds none of the jobs that they speak of."""

from __future__ import annotations

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.solvers import cpsat_search, ilp
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve

EXACT = Options(workers=1, work_limit=60)
EXCHANGING = Model((Segment("s", {"v": 10}, {"v": 10}, 50, 0),))
SHORT = Model((Segment("s", {"v": 4, "w": 8}, {"v": 1, "w": 2}, 0, 0),))


@pytest.mark.parametrize("solver", ["cpsat", "ilp"])
@pytest.mark.parametrize("gpus", [3, 4])
def test_a_late_release_and_a_long_exchange_of_another_job_do_not_add_up(
    solver: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pair exchanges its one bucket for 50 us after its blocks and ends at 70; the late job runs from 60 to 65.
    cluster = Cluster((Server("s", "v", gpus, 10**6, 10**6),))
    jobs = (Job("pair", "exchanging", 2, 1), Job("late", "short", 1, 1, release_us=60))
    instance = Instance("late", cluster, {"exchanging": EXCHANGING, "short": SHORT}, jobs)
    for module in (cpsat_search, ilp):  # from the models alone
        monkeypatch.setattr(module, "greedy_timetable", lambda pieces, seed: None)
    result = solve(instance, solver, EXACT)
    assert (result.status, result.objective) == (Status.OPTIMAL, 70)


@pytest.mark.parametrize("solver", ["cpsat", "ilp"])
def test_a_tail_on_one_type_says_nothing_of_the_other(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On "slow" the pair's last bucket is ready long before its block ends, on "fast" it is not.
    pair = Model(
        (
            Segment("body", {"fast": 1, "slow": 1}, {"fast": 1, "slow": 200}, 0, 0),
            Segment("head", {"fast": 1, "slow": 1}, {"fast": 1, "slow": 1}, 90, 0),
        )
    )
    servers = (Server("f", "fast", 2, 10**6, 10**6), Server("s", "slow", 2, 10**6, 10**6))
    cluster = Cluster(servers)
    jobs = (Job("a", "pair", 2, 1), Job("b", "pair", 2, 1, release_us=300))
    for module in (cpsat_search, ilp):
        monkeypatch.setattr(module, "greedy_timetable", lambda pieces, seed: None)
    result = solve(Instance("types", cluster, {"pair": pair}, jobs), solver, EXACT)
    # Forward 2, head ready at 3, 90 us of exchange: 93 after the later release.
    assert (result.status, result.objective) == (Status.OPTIMAL, 393)
