"""Searches of a solve on a Ray cluster, of which some are lost."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from threading import Event

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search import side_searches
from jigsaw_opt.solvers.search.side_searches import SideSearches
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.system.companions import Maker
from jigsaw_opt.system.ray_cluster import RayCompanion, cores, joined
from tests.processes import wait_for
from tests.refusals import misuse

pytest.importorskip("ortools")
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra ray)")
STORE_BYTES = 80_000_000


@pytest.mark.slow
def test_searches_on_a_cluster_find_plans_and_one_that_is_lost_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.cluster_utils import Cluster

    made: list[RayCompanion] = []

    def start(make: Maker) -> RayCompanion:
        made.append(RayCompanion(make))
        return made[-1]

    monkeypatch.setattr(side_searches, "_START_SECONDS", 0.0)
    operations = compile_instance(load("server/oversubscribed"))
    state = SolveState("search", operations, Options(threads=1, work_limit=1e6), lambda event: None)
    begun, node = Event(), {"object_store_memory": STORE_BYTES}
    begun.set()
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=2, **node)
        with joined(cluster.address), SideSearches(state, begun) as others, caplog.at_level(logging.WARNING):
            assert cores() == 3
            others.add(3, start)
            wait_for(lambda: (record := state.moves.get("opening")) is not None and record.calls == 3)
            made[0].end()
            wait_for(lambda: "is lost" in caplog.text)
            assert others.searching and state.best is not None
            # Of the two that are left, at least one is there.
            cluster.remove_node(second, allow_graceful=False)
            wait_for(lambda: caplog.text.count("is lost") >= 2)
            assert state.reason() is None and not others.failed
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_refused_before_anything_is_solved(address: str) -> None:
    with misuse("failed address"):
        solve(load("tiny/000"), ray=address)


def test_a_solver_that_does_not_search_refuses_a_cluster() -> None:
    with misuse("unknown-option ray"):
        solve(load("tiny/000"), "greedy", ray="auto")
