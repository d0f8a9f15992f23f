"""Least work, least iterations and best rates, against values by hand and by enumeration."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

from jigsaw_opt.problem import (
    Cluster,
    FreeDepth,
    Instance,
    Job,
    Link,
    Model,
    Operations,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.compiled.critical import (
    least_iteration_us,
    least_span_us,
    least_work_us,
    sites,
    tails_us,
    usable_gpus,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy


def operations(cluster: Cluster, model: Model, *jobs: Job) -> Operations:
    return compile_instance(Instance("i", cluster, {"m": model}, jobs))


def test_least_work_of_free_levels_is_convex() -> None:
    cluster = Cluster((Server("s", "v", 3, 1, 1),))
    model = Model(tuple(Segment(f"s{k}", {"v": 1}, {"v": 10}, 0, 0) for k in range(3)))
    jobs = (Job("free", "m", 3, 2, depth=FreeDepth(mean_depth="2/3")), Job("stairs", "m", 3, 2, depth=StaircaseDepth()))
    free, stairs = compile_instance(Instance("i", cluster, {"m": model}, jobs)).jobs
    # Both need 12 levels in all: 18 forward units and 10 for each level.
    assert least_work_us(free, (13, 23, 33)) == least_work_us(stairs, (13, 23, 33)) == 2 * (13 + 23 + 33)


def test_tail_follows_the_transfers() -> None:
    assert tails_us((4, 9), (3, 5)) == [12, 14]
    assert tails_us((4, 9), ()) == [4, 9]


def test_least_work_is_met_by_enumeration() -> None:
    cluster, cost = Cluster((Server("s", "v", 2, 1, 1),)), (3, 4, 9, 11)
    model = Model(tuple(Segment(f"s{k}", {"v": 1}, {"v": 1}, 0, 0) for k in range(4)))
    for total in range(4, 17):
        job = operations(cluster, model, Job("j", "m", 2, 2, depth=FreeDepth(1, f"{total}/16"))).jobs[0]
        pairs = [pair for pair in product(range(1, 5), repeat=2) if max(pair) == 4]
        chosen = [a + b for a, b in product(pairs, repeat=2) if sum(a + b) >= total]
        best = min(sum(cost[level - 1] for level in levels) for levels in chosen)
        # The envelope leaves out the step from 2 to 3, which is dearer than half of the way from 2 to 4.
        assert best - 3 <= least_work_us(job, cost) <= best


def test_shallow_workers_take_the_slow_gpus() -> None:
    model = Model(
        (
            Segment("a", {"fast": 1, "slow": 2}, {"fast": 4, "slow": 8}, 0, 0),
            Segment("b", {"fast": 1, "slow": 2}, {"fast": 2, "slow": 4}, 0, 0),
        )
    )
    servers = (Server("f", "fast", 1, 1, 10**9), Server("s", "slow", 1, 1, 10**9))
    part = operations(
        Cluster(servers, (), (Link("l", ("f", "s"), 10**9),)),
        model,
        Job("stairs", "m", 2, 1, depth=StaircaseDepth()),
        Job("full", "m", 2, 1),
    )
    stairs, full = (least_iteration_us(part, job, usable_gpus(part, job)) for job in part.jobs)
    assert (stairs, full) == (8, 16)


def test_free_levels_make_transfers_longer() -> None:
    segments = tuple(Segment(f"s{k}", {"v": 1}, {"v": 1}, 120, 0) for k in range(2))
    part = operations(
        Cluster((Server("s", "v", 2, 10**6, 10**6),)), Model(segments), Job("j", "m", 2, 4, depth=FreeDepth(1, "7/8"))
    )
    (job,) = part.jobs
    span = least_span_us(job, sites(part, job, usable_gpus(part, job)))
    # 14 of 16 levels: bucket 2 has a second contributor in two of the four iterations, and then takes 120 us, not 60.
    # Bucket 1 is ready after 3 us and takes 120 us.
    assert span == 4 * (3 + 120 + 60) + 2 * 60


def test_no_placement_beats_the_best_rate_of_rings() -> None:
    servers = tuple(Server(f"s{k}", "v", 1 + k % 2, 1, 30 + 10 * k, k % 3) for k in range(5))
    links = (
        Link("a", ("s0", "r"), 50, 2), Link("b", ("s1", "r"), 70, 1), Link("c", ("s2", "r"), 20, 0),
        Link("d", ("s3", "q"), 90, 0), Link("e", ("s4", "q"), 60, 3), Link("f", ("r", "q"), 40, 5),
        Link("g", ("s0", "p"), 80, 1), Link("h", ("s4", "p"), 80, 1),
    )  # fmt: skip
    policies = {"p": RoutePolicy(avoid=("p",)), "g": RoutePolicy(avoid_links=("d",), via=(("q",),))}
    model = Model((Segment("s", {"v": 1}, {"v": 1}, 0, 0),))
    cluster = Cluster(servers, ("r", "q", "p"), links, policies)
    gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]
    for policy, slots in product((None, "p", "g"), range(2, len(gpus) + 1)):
        part = operations(cluster, model, Job("j", "m", slots, 1, route_policy=policy))
        placements = [Counter(s for s, _ in chosen) for chosen in combinations(gpus, slots)]
        channels = [c for c in map(part.routes.under(policy).channel, placements) if c is not None and c.links]
        ring = part.crossing(part.jobs[0], {s: server.gpus for s, server in enumerate(servers)})
        assert (ring is None) <= (not channels)
        if channels and ring is not None:
            best = max(channel.rate for channel in channels), min(channel.latency_us for channel in channels)
            # A shorter way around may be slower, and what a walk has to pass is left out of what is claimed.
            assert ring.rate >= best[0] and ring.latency_us <= best[1]
            assert policy != "p" or (ring.rate, ring.latency_us) == best
