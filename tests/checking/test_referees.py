"""The checker beside random changes, routes of others, and brute force, which is itself tested on what is known."""

from __future__ import annotations

import ast
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fault_campaign.referee import verdict
from fault_campaign.referee_network import route_between

import jigsaw_opt.checking as checking
from jigsaw_opt.checking import check
from jigsaw_opt.checking.checker import violations
from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.documents import encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Plan, Segment, Server
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_fabrics import random_fabric, random_policy
from tests.random_instances import GOALS, random_instance, tight_instance, with_route_policies
from tests.task_graph_oracle import task_graph_optimum

LENGTHS, WEIGHTS = (3, 1, 4, 2), (2, 5, 1, 3)


def machines(gpus: int, objective: str) -> Instance:
    models = {f"m{p}": Model((Segment("s", {"v": p}, {"v": 0}, 0, 0),)) for p in LENGTHS}
    jobs = tuple(Job(f"j{k}", f"m{p}", 1, 1, weight=WEIGHTS[k]) for k, p in enumerate(LENGTHS))
    return Instance("machines", Cluster((Server("s", "v", gpus, 1, 1),)), models, jobs, "finite", objective)  # type: ignore[arg-type]


def test_smiths_rule() -> None:
    order = sorted(range(4), key=lambda k: LENGTHS[k] / WEIGHTS[k])
    ends = {k: sum(LENGTHS[j] for j in order[: place + 1]) for place, k in enumerate(order)}
    assert optimum(machines(1, "weighted_completion")) == sum(WEIGHTS[k] * end for k, end in ends.items())


def test_the_example_of_the_specification(pair: Instance) -> None:
    assert optimum(pair) == 1800


def one_at_a_time(lasts: tuple[int, ...], *servers: Server) -> Instance:
    """Jobs of one block of these lengths, of which only one has room on a GPU; fifty times as long on type ``w``."""
    models = {
        f"m{k}": Model((Segment("s", {"v": p, "w": 50 * p}, {"v": 0, "w": 0}, 10, 0),), state_factor=1)
        for k, p in enumerate(lasts)
    }
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1) for k in range(len(lasts)))
    return Instance("one at a time", Cluster(servers), models, jobs)


def test_jobs_that_do_not_fit_together_follow_one_another() -> None:
    instance = one_at_a_time((3, 5, 6), Server("s", "v", 1, 10, 1))
    times = zip(instance.jobs, (1, 9, 0), (4, 20, 10), strict=True)
    instance = replace(instance, jobs=tuple(replace(job, release_us=r, deadline_us=d) for job, r, d in times))
    assert optimum(instance) == task_graph_optimum(instance) == 15


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_two_ways_of_brute_force_agree_where_memory_is_scarce(objective: Objective) -> None:
    found = []
    for seed in range(12):
        instance = tight_instance(seed, objective, "data-parallel", operations=5)
        found.append(optimum(instance))
        assert task_graph_optimum(instance) == found[-1], seed
    assert None in found and len(set(found)) > 5


@pytest.mark.parametrize("seed", range(30))
def test_changes_of_one_place_are_rejected(seed: int) -> None:
    instance = random_instance(seed, *GOALS[seed % 3], 10)
    plan = solve(instance, "greedy", Options(threads=1)).plan
    if plan is None:
        assert optimum(instance) is None
        return
    job, bound = plan.jobs[0], plan.objective
    iteration, block = job.iterations[0], job.iterations[0].blocks[0]

    def with_job(**changes: Any) -> Plan:
        return plan.with_jobs((replace(job, **changes), *plan.jobs[1:]))

    def with_iteration(**changes: Any) -> Plan:
        return with_job(iterations=(replace(iteration, **changes), *job.iterations[1:]))

    broken = {
        "an end": with_iteration(blocks=(replace(block, end_us=block.end_us - 1), *iteration.blocks[1:])),
        "a level": with_iteration(blocks=(replace(block, level=0), *iteration.blocks[1:])),
        "a GPU": with_job(gpus=("nowhere/0", *job.gpus[1:])),
        "the bound": replace(plan, bound=bound + 1),
        "the objective": replace(plan, objective=plan.objective + 1),
        "an iteration": with_job(iterations=job.iterations[1:]),
    }
    if iteration.transfers:
        broken["a transfer"] = with_iteration(transfers=iteration.transfers[1:])
    assert [what for what, changed in broken.items() if not check(instance, changed)] == []


def test_the_checker_stands_on_the_definitions_alone() -> None:
    folder = Path(checking.__file__).parent
    allowed = {
        "bound_proof",
        "cluster",
        "depth",
        "exchange",
        "instance",
        "job",
        "keyed",
        "model",
        "phased_plan",
        "plan",
        "power",
        "route_policy",
        "task_graph",
    }
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jigsaw_opt."):
                room, *rest = (node.module or "").split(".")[1:]
                assert room in {"arguments", "checking", "documents", "errors", "problem", "text"}
                assert room != "problem" or set(rest[-1:]) <= allowed
                assert {alias.name for alias in node.names}.isdisjoint({"Routes", "Channel"})


def test_routes_under_policies_agree() -> None:
    rng, found = random.Random(2), {True: 0, False: 0}
    for _ in range(300):
        fabric = random_fabric(rng)
        policy = random_policy(rng, fabric.graph)
        count = rng.randint(2, len(fabric.ends))
        names = [(a, b) for a, b in ((fabric.graph.nodes[x], fabric.graph.nodes[y]) for x, y in fabric.graph.ends)]
        links = tuple(
            Link(name, pair, rng.randint(1, 9), rng.randint(0, 9)) for name, pair in zip(fabric.graph.links, names)
        )
        servers = tuple(Server(name, "v", 2, 1, rng.randint(1, 9)) for name in fabric.ends[:count])
        cluster = Cluster(servers, fabric.ends[count:], links, {"p": policy})
        routes, own = Routes(cluster).under("p"), RouteFinder(cluster, "p")
        document = policy.keyed()
        for one in range(count):
            for other in range(one + 1, count):
                route = routes.between(one, other)
                ends = (servers[one].name, servers[other].name)
                told = route_between([link.keyed() for link in links], document, *ends)
                assert (None if told is None else [x["name"] for x in told]) == (
                    None if route is None else [links[k].name for k in route]
                )
                assert routes.lengths(one).get(other) == (None if route is None else len(route))
                assert routes.lengths(other).get(one) == routes.lengths(one).get(other)
                assert routes.joined(one, other) == (route is not None)
                assert route is None or routes.component[one] == routes.component[other]
                terms = own.passage(one, other)
                assert (terms is None) == (route is None)
                found[route is None] += 1
                if terms is not None and route is not None:
                    assert terms.links == set(route)
        ring, exchange = routes.channel(dict.fromkeys(range(count), 1)), own.exchange(range(count))
        assert (ring is None) == (exchange is None)
        if ring is not None and exchange is not None:
            assert (set(ring.links), ring.rate) == (exchange.links, exchange.rate)
    assert min(found.values()) > 300


def test_servers_that_both_reach_a_third_may_not_reach_one_another() -> None:
    """A limit of one link: the ring of all three is refused, whichever two are its neighbours."""
    servers = tuple(Server(name, "v", 1, 1, 1) for name in "abcd")
    links = tuple(Link(a + b, (a, b), 1) for a, b in ("ab", "bc", "cd", "da"))
    cluster = Cluster(servers, (), links, {"p": RoutePolicy(max_links=1)})
    routes, own = Routes(cluster).under("p"), RouteFinder(cluster, "p")
    assert routes.ring((0, 1)) == (0,) and own.exchange([0, 1]) is not None
    assert routes.ring((0, 1, 2, 3)) is None and own.exchange([0, 1, 2, 3]) is None
    assert Routes(cluster).ring((0, 1, 2, 3)) == (0, 1, 2, 3)


def test_checker_and_referee_judge_plans_that_know_no_policies_alike() -> None:
    """Plans of data-parallel jobs, made without policies that their jobs have."""
    rules: Counter[str] = Counter()
    for seed in range(120):
        free = random_instance(seed, *GOALS[seed % 3])
        plan = solve(free, "greedy", Options(threads=1)).plan
        if plan is None:
            continue
        instance = with_route_policies(free, random.Random(seed))
        tried = replace(plan, instance_sha256=instance_sha256(instance), bound=0, status="feasible")
        found = violations(instance, tried)
        own = verdict(json.loads(encode_instance(instance)), json.loads(encode_plan(tried)))
        assert bool(found) == bool(own), f"{seed}: {found} or {own!r}"
        rules.update({violation.rule for violation in found} or {"correct"})
    assert rules["placement"] > 5 and rules["correct"] > 50
