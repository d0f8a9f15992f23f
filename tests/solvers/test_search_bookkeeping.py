"""What the search keeps up to date step by step: busy times, loads, memory, and which moves pay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.calendar import Calendar, union
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.params import DriverParams, SearchParams
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.search.driver import AdaptiveSelection
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from tests.random_instances import GOALS, random_instance

PERIODS = st.one_of(st.none(), st.integers(1, 24))
REQUESTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 7)), max_size=12)


def fill(period: int | None, requests: list[tuple[int, int]]) -> tuple[Calendar, list[tuple[int, int]]]:
    """A timeline with each request as early as it fits, and the intervals."""
    calendar, taken = Calendar(period), []
    for moment, duration in requests:
        start = calendar.earliest(moment, duration)
        if start is not None:
            calendar.add(start, start + duration)
            taken.append((start, start + duration))
    return calendar, taken


def is_free(taken: list[tuple[int, int]], start: int, end: int, period: int | None) -> bool:
    if start == end:
        return True
    if period is None:
        return all(last <= start or end <= first for first, last in taken if first < last)
    used = Counter(t % period for first, last in [*taken, (start, end)] for t in range(first, last))
    return all(count == 1 for count in used.values())


def by_brute_force(taken: list[list[tuple[int, int]]], moment: int, duration: int, period: int | None) -> int | None:
    """Earliest start at which all lists of intervals leave the duration free."""
    latest = max([moment, *(last for some in taken for _, last in some)]) if period is None else moment + period - 1
    for start in range(moment, latest + 1):
        if not duration or all(is_free(some, start, start + duration, period) for some in taken):
            return start
    return None


@settings(max_examples=150)
@given(PERIODS, REQUESTS, st.integers(0, 40), st.integers(0, 25))
def test_earliest_free_time(period: int | None, requests: list[tuple[int, int]], moment: int, duration: int) -> None:
    calendar, taken = fill(period, requests)
    assert all(is_free(taken[:k], *interval, period) for k, interval in enumerate(taken))
    assert calendar.earliest(moment, duration) == by_brute_force([taken], moment, duration, period)


@settings(max_examples=100)
@given(PERIODS, st.lists(REQUESTS, min_size=1, max_size=3), st.integers(0, 40), st.integers(0, 9))
def test_earliest_time_free_on_all(
    period: int | None, requests: list[list[tuple[int, int]]], moment: int, duration: int
) -> None:
    filled = [fill(period, some) for some in requests]
    found = union([calendar for calendar, _ in filled], period).earliest(moment, duration)
    assert found == by_brute_force([taken for _, taken in filled], moment, duration, period)


@settings(max_examples=80)
@given(PERIODS, REQUESTS, st.randoms(use_true_random=False))
def test_what_is_removed_leaves_no_trace(period: int | None, requests: list[tuple[int, int]], rng: Random) -> None:
    calendar, taken = fill(period, requests)
    rng.shuffle(taken)
    stays, goes = taken[::2], taken[1::2]
    for interval in goes:
        calendar.remove(*interval)
    fresh = Calendar(period)
    for interval in stays:
        fresh.add(*interval)
    assert (calendar.starts, calendar.ends, calendar.busy_us) == (fresh.starts, fresh.ends, fresh.busy_us)
    assert calendar.busy_us == sum(end - start for start, end in stays)


def balance_of(instance: Instance, seed: int = 0, params: SearchParams | None = None) -> LoadBalancer | None:
    """A whole placement, or None where none was found."""
    operations = compile_instance(instance)
    asked = demands(operations)
    if asked is None:
        return None
    balancer = LoadBalancer(ProblemData(operations, asked, params=params), Random(seed), 1000)
    return balancer if balancer.build(range(len(operations.jobs))) else None


def state(placement: PartialPlacement) -> tuple[object, ...]:
    """All that a placement is, but for the order in which jobs came."""
    assignments = [
        None if assignment is None else (assignment.gpus, assignment.plan, assignment.exchange)
        for assignment in placement.assignments
    ]
    free = [[placement.cap(index, gpu) for gpu in range(len(placement.gpu_us))] for index in range(len(assignments))]
    return (
        assignments,
        list(placement.gpu_us),
        list(placement.link_us),
        free,
        *map(str, map(on, (placement.on_gpu, placement.on_link))),
    )


def on(table: object) -> object:
    """Who is on what, sorted."""
    assert isinstance(table, list)
    return [sorted(dict(there).items()) for there in table]


@pytest.mark.parametrize("family", ["server", "rack"])
def test_undone_moves_leave_the_placement_as_it_was(family: str) -> None:
    balancer = balance_of(generate(family, 3))
    assert balancer is not None
    changed = 0
    for _ in range(120):
        before = state(balancer.placement)
        change = balancer.change()
        if change is not None:
            moved, _gain = change
            changed += state(balancer.placement) != before
            balancer.undo(moved)
        assert state(balancer.placement) == before
    assert changed >= 30


@pytest.mark.parametrize("family", ["server", "rack"])
def test_loads_after_many_moves_are_those_of_the_placement(family: str) -> None:
    balancer = balance_of(generate(family, 5))
    assert balancer is not None
    balancer.anneal(300, 0.3)
    other = LoadBalancer(balancer.data, Random(1), 1000)
    other.adopt(balancer.assignments())
    assert state(other.placement) == state(balancer.placement)
    for index in range(len(other.placement.assignments)):
        other.placement.unplace(index)
    assert state(other.placement) == state(PartialPlacement(balancer.data))


def test_where_jobs_yield_there_is_room_that_their_levels_take() -> None:
    more = resolved = 0
    for seed in range(120):
        balancer = balance_of(scarce(seed), seed)
        if balancer is None:
            continue
        data = balancer.data
        keeping, yielding = (LoadBalancer(data, Random(seed), 1000) for _ in range(2))
        keeping.placement = PartialPlacement(data)
        for index, assignment in enumerate(balancer.assignments()):
            for gpu in range(len(data.layout.gpus)):
                least, most = keeping.placement.cap(index, gpu), yielding.placement.cap(index, gpu)
                assert least <= most
                more += least < most
            keeping.place(index, assignment)
            yielding.place(index, assignment)
        assignments = yielding.placement.resolved()
        resolved += assignments is not None and within_memory(data, assignments)
    assert more >= 10
    assert resolved >= 20


def test_jobs_that_yield_on_several_gpus_still_find_levels() -> None:
    jointly = changed = 0
    for seed in range(120):
        instance = scarce(seed)
        balancer = balance_of(replace(instance, jobs=tuple(replace(job, workers=3) for job in instance.jobs)), seed)
        for _ in range(20) if balancer is not None else ():
            assert balancer is not None
            assert balancer.placement.resolved() is not None
            changed += balancer.change() is not None
            jointly += any(assignment.caps is not None for assignment in balancer.assignments())
    assert changed >= 100
    assert jointly >= 100


def test_a_job_is_taken_away_only_once() -> None:
    balancer = balance_of(generate("server", 1))
    assert balancer is not None
    balancer.placement.unplace(0)
    with pytest.raises(ValueError, match="job 0"):
        balancer.placement.unplace(0)
    assert balancer.placement.resolved() is None


def scarce(seed: int) -> Instance:
    """Jobs of four levels on GPUs of so little memory that some workers cannot go deep."""
    rng = Random(seed)
    servers = tuple(Server(f"s{k}", "v", 2, rng.choice((12, 24, 40)), 10**6) for k in range(3))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(3))
    segments = tuple(Segment(f"g{k}", {"v": 1}, {"v": 2}, 1, rng.randint(1, 6)) for k in range(4))
    rules: tuple[Depth, ...] = (StaircaseDepth(), FreeDepth(), FreeDepth(1, "1/2", 1))
    jobs = tuple(Job(f"j{k}", "m", rng.randint(1, 4), 2, depth=rng.choice(rules)) for k in range(3))
    return Instance("scarce", Cluster(servers, ("hub",), links), {"m": Model(segments, state_factor=1)}, jobs)


def test_settled_levels_keep_to_memory() -> None:
    resolved = limited = 0
    for seed in range(120):
        balancer = balance_of(scarce(seed), seed)
        for _ in range(10) if balancer is not None else ():
            assert balancer is not None
            balancer.step(1.0)
            assignments = balancer.placement.resolved()
            if assignments is not None:
                limited += sum(assignment.caps is not None for assignment in assignments)
                assert within_memory(balancer.data, assignments)
                resolved += 1
    assert resolved >= 200
    assert limited >= 50


def within_memory(data: ProblemData, assignments: Sequence[Assignment]) -> bool:
    """Whether every level has a slot whose cap admits it, and memory has room for all workers at their caps."""
    held: Counter[int] = Counter()
    deepest: dict[int, int] = {}
    for assignment in assignments:
        caps = assignment.caps or [assignment.job.levels] * assignment.job.slots
        # Levels that are not fixed descend, and are dealt out when they are timed.
        ordered = caps if assignment.plan.fixed else sorted(caps, reverse=True)
        if any(level > cap for row in assignment.plan.rows for level, cap in zip(row, ordered, strict=True)):
            return False
        held.update(dict.fromkeys(assignment.gpus, assignment.job.state_bytes))
        for gpu, cap in zip(assignment.gpus, caps, strict=True):
            deepest[gpu] = max(deepest.get(gpu, 0), assignment.job.activation_bytes[cap - 1])
    return all(held[gpu] + deepest[gpu] <= data.layout.memory[gpu] for gpu in held)


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_moves_keep_to_types_and_routes(horizon: Horizon, objective: Objective) -> None:
    moved = 0
    for seed in range(80):
        balancer = balance_of(random_instance(seed, horizon, objective, operations=16), seed)
        for _ in range(12) if balancer is not None else ():
            assert balancer is not None
            moved += balancer.change() is not None
            layout = balancer.data.layout
            for assignment in balancer.assignments():
                assert len(set(assignment.gpus)) == assignment.job.slots
                assert {layout.type_of[gpu] for gpu in assignment.gpus} <= set(assignment.job.gpu_types)
                assert layout.channel(assignment.job, assignment.gpus) is not None
    assert moved >= 200


def test_every_kind_is_tried_first_and_what_pays_comes_most() -> None:
    names = ("a", "b", "c")
    choice = AdaptiveSelection(names, Random(2), DriverParams())
    assert [choice.next() for _ in names] == list(names)
    for name in names:
        choice.reward(name, name == "b", 1.0)
    seen: Counter[str] = Counter()
    for _ in range(300):
        name = choice.next()
        seen[name] += 1
        choice.reward(name, name == "b", 1.0)
    assert seen["b"] > 2 * max(seen["a"], seen["c"])
    assert min(seen[name] for name in names) > 0


def test_what_gained_is_made_once_again_before_others_are_tried() -> None:
    choice = AdaptiveSelection(("a", "b", "c"), Random(2), DriverParams())
    made = []
    for _ in range(4):
        made.append(choice.next())
        choice.reward(made[-1], 0.1 if made[-1] == "a" else 0.0, 1.0)
    assert made == ["a", "a", "b", "c"]


@pytest.mark.parametrize(("gain", "seconds"), [(0.001, 1.0), (0.01, 10.0)])
def test_what_gains_more_in_the_same_time_or_as_much_in_less_comes_more_often(gain: float, seconds: float) -> None:
    choice = AdaptiveSelection(("worse", "better"), Random(5), DriverParams())
    seen: Counter[str] = Counter()
    for _ in range(300):
        name = choice.next()
        seen[name] += 1
        choice.reward(name, *((0.01, 1.0) if name == "better" else (gain, seconds)))
    assert seen["better"] > 2 * seen["worse"] > 0


def test_what_gains_nothing_fades_and_is_asked_again() -> None:
    choice = AdaptiveSelection(("vain", "good"), Random(5), DriverParams())
    seen: list[str] = []
    for _ in range(300):
        seen.append(choice.next())
        choice.reward(seen[-1], 0.01 if seen[-1] == "good" else 0.0, 1.0)
    assert 0 < seen[100:].count("vain") < 20
