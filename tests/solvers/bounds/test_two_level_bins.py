"""Links of racks and of the servers in them, packed at once: never above an optimum, above each packed alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.bounds import BoundContext, lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.packing.destructive import DestructiveTest, destructive_bounds
from jigsaw_opt.solvers.bounds.packing.two_level_bins import TwoLevelPacking, link_packings, two_level_packings
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget
from tests.oracle import optimum
from tests.random_instances import MICRO

FAST = Model((Segment("a", {"f": 1, "s": 30}, {"f": 0, "s": 0}, 6, 0),))
"""Too slow for most periods but on GPUs of type f."""
ANYWHERE = Model((Segment("a", {"f": 1, "s": 1}, {"f": 0, "s": 0}, 6, 0),))


OBJECTIVE: dict[Horizon, Objective] = {"cyclic": "period", "finite": "makespan"}


def racks(
    jobs: list[str], kinds: tuple[str, ...] = ("fs", "fs"), uplink: int = MICRO, horizon: Horizon = "cyclic"
) -> Instance:
    """Jobs of two workers on racks of servers of one GPU each; a transfer takes about 6 us."""
    servers, links = [], []
    for r, types in enumerate(kinds):
        links.append(Link(f"u{r}", (f"rack{r}", "core"), uplink))
        for k, kind in enumerate(types):
            servers.append(Server(f"{kind}{r}{k}", kind, 1, 2**52, 10**9))
            links.append(Link(f"l{r}{k}", (f"{kind}{r}{k}", f"rack{r}"), MICRO))
    switches = ("core", *(f"rack{r}" for r in range(len(kinds))))
    models = {"fast": FAST, "anywhere": ANYWHERE}
    asked = tuple(Job(f"j{k}", model, 2, 1) for k, model in enumerate(jobs))
    return Instance(
        "racks", Cluster(tuple(servers), switches, tuple(links)), models, asked, horizon, OBJECTIVE[horizon]
    )


def two_level_packing(instance: Instance) -> TwoLevelPacking:
    operations = compile_instance(instance)
    (found,) = two_level_packings(BoundContext(operations))
    return found


def raised(test: DestructiveTest, known: int) -> list[int]:
    return [bound.value for bound in destructive_bounds(test, known, 10**6, BoundBudget())]


def packed_alone(instance: Instance) -> int:
    """The bound of the links of servers and of those of racks, each by itself."""
    operations = compile_instance(instance)
    best = lower_bound(operations).value
    for test in link_packings(BoundContext(operations)):
        best = max([best, *raised(test, best)])
    return best


def test_links_of_racks_and_servers_together_refute_what_each_leaves_open() -> None:
    # The fast GPUs of both racks are one job's, which takes both uplinks; the other job is whole in a rack and meets
    # it at a server, or reaches over both and meets it at the uplinks.
    instance = racks(["fast", "anywhere"])
    alone = packed_alone(instance)
    best = optimum(instance)
    assert best is not None
    assert alone < best
    found = max(raised(two_level_packing(instance), alone))
    assert alone < 12 <= found <= best
    bounds = {bound.reason: bound.value for bound in stronger_bounds(compile_instance(instance), alone)}
    assert bounds["jobs too wide for one server packed onto the links of 2 places and of the servers in them"] == found


def test_jobs_that_have_room_in_one_rack_are_left_to_the_links_of_servers() -> None:
    assert two_level_packing(racks(["anywhere", "anywhere"])).packing(10**2) is None
    assert not two_level_packing(racks(["anywhere", "anywhere"])).refutes(1, BoundBudget())
    assert two_level_packing(racks(["fast", "anywhere"])).packing(10) is not None


@pytest.mark.slow
def test_no_bound_exceeds_the_optimum() -> None:
    compared = 0
    for seed in range(24):
        draw = Random(seed)
        kinds = tuple(draw.choice(("fs", "ff", "ss")) for _ in range(2))
        jobs = [draw.choice(("fast", "anywhere")) for _ in range(2)]
        if sum(types.count("f") for types in kinds) < 2 * ("fast" in jobs):
            continue
        instance = racks(jobs, kinds, draw.choice((1, 2)) * MICRO // 2, "finite")
        best = optimum(instance)
        assert best is not None
        found = raised(two_level_packing(instance), lower_bound(compile_instance(instance)).value)
        assert all(value <= best for value in found), (seed, found, best)
        compared += bool(found)
    assert compared >= 2


def test_the_best_content_of_a_rack_is_never_underestimated() -> None:
    instance = racks(["fast", "anywhere", "anywhere", "anywhere"], ("fss", "fss"))
    for limit, prices in product((10, 13, 20), ((5, 3), (1, 4), (0, 1), (10**12, 7 * 10**11))):
        packing = two_level_packing(instance).packing(limit)
        assert packing is not None
        (kind,) = packing.bins
        found = kind.best(prices)
        assert found is not None
        copies = sum(prices[c] * count for c, count in found.copies.items())
        assert found.value >= copies
        assert found.value >= _most(limit, prices)


def _most(limit: int, prices: tuple[int, ...]) -> int:
    """What a rack of one fast and two slow servers holds of one fast job and three of the other: all ways there are."""
    best = 0
    servers = {"f": 0, "s": 1, "t": 2}
    ways = [(), ("f",), ("s",), ("t",), ("f", "s"), ("f", "t"), ("s", "t")]
    for fast, *others in product([(), ("f",)], ways, ways, ways):
        links = [0, 0, 0, 0]
        for way in (fast, *others):
            for server in way:
                links[servers[server]] += 6
            if len(way) == 1:
                links[3] += 6
        if max(links) <= limit:
            best = max(best, prices[0] * len(fast) + prices[1] * sum(map(len, others)))
    return best


@pytest.mark.parametrize("work", [0.0, 10.0])
def test_it_pays_for_its_work(work: float) -> None:
    budget = BoundBudget(work)
    refuted = two_level_packing(racks(["fast", "anywhere"])).refutes(7, budget)
    assert (refuted is not None) == (work > 0)
    assert budget.left < work


@pytest.mark.parametrize("unit", (1, 2**47))
def test_times_are_rounded_so_that_the_engine_takes_them_and_nothing_is_refuted_that_fits(unit: int) -> None:
    instance = racks(["fast", "anywhere"])
    models = {
        name: Model(
            (Segment("a", {kind: us * unit for kind, us in segment.forward_us.items()}, {"f": 0, "s": 0}, 6 * unit, 0),)
        )
        for name, model in instance.models.items()
        for segment in model.segments
    }
    large = two_level_packing(replace(instance, models=models))
    assert large.refutes(11 * unit, BoundBudget())
    assert not large.refutes(13 * unit, BoundBudget())
