"""Operation graphs: durations, buckets, memory, exact costs, and the least work, time and rate of a job."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from jigsaw_opt.problem.compiled.critical import least_span_us, least_work_us, sites, tails_us, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import levels_within, needed_bytes, staircase, transfer_us
from jigsaw_opt.problem.network.route_policy import RoutePolicy

SEGMENTS = (
    Segment("stem", {"v": 10, "w": 5}, {"v": 20, "w": 9}, 100, 7),
    Segment("body", {"v": 30, "w": 6}, {"v": 60}, 50, 3),
    Segment("head", {"v": 1, "w": 1}, {"v": 2, "w": 2}, 25, 4),
)


def graph_of(job: Job, model: Model | None = None) -> OperationGraph:
    cluster = Cluster((Server("s", "v", 4, 10**9, 10**9),))
    return compile_instance(Instance("i", cluster, {"m": model or Model(SEGMENTS)}, (job,))).jobs[0]


def test_durations_buckets_and_memory_by_level() -> None:
    operation = graph_of(Job("j", "m", 2, 1))
    assert operation.gpu_types == ("v",)
    assert operation.blocks[0].duration_us == {"v": (43, 103, 123)}
    assert [t.payload_bytes for t in operation.transfers] == [25, 50, 100]
    assert operation.state_bytes == 4 * 175
    assert operation.activation_bytes == (4 + 7, 7 + 7, 14)


def test_levels_of_ones_choice_join_segments_in_one_bucket() -> None:
    operation = graph_of(Job("j", "m", 2, 1), Model(SEGMENTS, levels=(2, 3), state_factor=1))
    assert operation.blocks[0].duration_us["v"] == (103, 123)
    assert [t.payload_bytes for t in operation.transfers] == [75, 100]
    assert operation.state_bytes == 175


def test_the_staircase_is_the_rounded_up_even_one() -> None:
    assert staircase(3, 2) == (2, 3)
    assert staircase(4, 4) == (1, 2, 3, 4)
    assert staircase(2, 5) == (1, 1, 2, 2, 2)
    assert graph_of(Job("j", "m", 2, 5, depth=StaircaseDepth())).rule.min_total == 25


@given(st.integers(0, 2**53), st.integers(1, 64), st.integers(1, 64), st.integers(1, 2**53), st.integers(0, 10**6))
def test_transfers_are_exact(payload: int, c: int, w: int, rate: int, latency: int) -> None:
    exact = Fraction(payload * 10**6, rate) * (Fraction(c - 1, c) + Fraction(w - 1, w))
    moved = transfer_us(payload, c, w, rate, latency) - (c + w - 2) * latency
    assert exact <= moved < exact + 1


def test_states_add_up_and_activations_take_turns() -> None:
    assert needed_bytes([(10, 5), (20, 7), (30, 6)]) == 67
    assert needed_bytes([]) == 0


@pytest.mark.parametrize(("room", "level"), [(-1, 0), (3, 0), (4, 1), (8, 2), (9, 3), (100, 3)])
def test_levels_within_a_room(room: int, level: int) -> None:
    assert levels_within((4, 8, 9), room) == level


def operations(cluster: Cluster, model: Model, *jobs: Job) -> Operations:
    return compile_instance(Instance("i", cluster, {"m": model}, jobs))


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
