"""Background jobs in what foreground jobs leave, against every vector of iterations on tiny instances."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import pytest

from jigsaw_opt.checking import check, violations
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.fill import fill, insert
from jigsaw_opt.planning.fill.alone import alone
from jigsaw_opt.planning.fill.loads import Loads, restricted
from jigsaw_opt.planning.fill.neighbourhoods import PackingSearch
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.depth import StaircaseDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.task_graph import Barrier, Edge, MemoryInterval, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import fails, misuse

WORK = Options(work_limit=20.0, threads=1)


def line(
    name: str, *blocks: tuple[str, int], barrier: Barrier = "job", ordered: bool = True, held: int = 0
) -> TaskGraphJob:
    """Blocks one behind the other or in any order, each on a slot, which hold bytes while they are on the first."""
    slots = tuple(Slot(slot) for slot in dict.fromkeys(slot for slot, _ in blocks))
    made = tuple(TaskGraphBlock(f"b{at}", (slot,), {"gpu": us}) for at, (slot, us) in enumerate(blocks))
    edges = tuple(Edge(f"b{at}", f"b{at + 1}") for at in range(len(made) - 1)) if ordered else ()
    last = max(at for at, (slot, _) in enumerate(blocks) if slot == blocks[0][0])
    holds = (MemoryInterval("b0", f"b{last}", held),) if held else ()
    return TaskGraphJob(name, TaskGraph(slots, made, (), edges, barrier, holds), 1)


def instance(*jobs: Job | TaskGraphJob, gpus: int = 2) -> Instance:
    """Jobs on one server."""
    segments = tuple(Segment(name, {"gpu": 1}, {"gpu": 2}, 1, 0) for name in ("low", "high"))
    cluster = Cluster((Server("s", "gpu", gpus, 10**6, 10**6),))
    return Instance("holes", cluster, {"m": Model(segments)}, jobs, "cyclic", "period")


THERE_AND_BACK = line("front", ("x", 4), ("y", 6), ("x", 5))
CASES = [
    instance(THERE_AND_BACK, line("a", ("z", 4)), line("b", ("z", 5))),
    instance(THERE_AND_BACK, line("a", ("z", 5)), line("b", ("z", 3), ("w", 4))),
    instance(THERE_AND_BACK, line("a", ("z", 6)), Job("b", "m", 2, 1, depth=StaircaseDepth())),
]


def best_rate(whole: Instance, allowed_us: int, paces_us: dict[str, int] | None = None) -> Fraction | None:
    """The best rate over all vectors, each solved to its least period; None where none keeps the cycle-time limits."""
    names = [job.name for job in whole.jobs[1:]]
    works = [
        sum(block.duration_us["gpu"] for block in job.shape.blocks) if isinstance(job, TaskGraphJob) else 10
        for job in whole.jobs[1:]
    ]
    best = None if paces_us else Fraction(0)
    for counts in product(range(6), repeat=len(names)):
        work = 15 + sum(k * us for k, us in zip(counts, works, strict=True))
        if not any(counts) or work > 2 * allowed_us:
            continue
        chosen = {"front": 1} | dict(zip(names, counts, strict=True))
        result = solve(restricted(whole, chosen), "cpsat", Options(threads=1))
        assert result.status == "optimal"
        limits = [pace * chosen[name] for name, pace in (paces_us or {}).items()]
        if result.objective <= min([allowed_us, *limits]):
            best = max(best or Fraction(0), Fraction(sum(counts), result.objective))
    return best


@pytest.mark.parametrize("slowdown", [Fraction(1), Fraction(6, 5)])
@pytest.mark.parametrize("whole", CASES)
def test_the_best_of_all_vectors_is_found_and_proven(whole: Instance, slowdown: Fraction) -> None:
    found = fill(whole, ["front"], WORK, slowdown=slowdown)
    assert found.details.foreground_us == 15
    assert found.details.allowed_us == int(15 * slowdown)
    assert found.details.status == "optimal"
    best = best_rate(whole, found.details.allowed_us)
    assert best is not None and found.details.rate == pytest.approx(float(best * 10**6))
    assert found.gap == 0 and found.proof.relaxation == "fill"
    assert not check(found.instance, found.plan)
    assert found.plan.objective <= found.details.allowed_us
    assert 0 < found.details.filled <= 1


@pytest.mark.parametrize("paces_us", [{"b": 9}, {"a": 8, "b": 16}, {"a": 5, "b": 6}])
@pytest.mark.parametrize("whole", CASES)
def test_least_rates_are_kept_and_the_best_of_all_vectors_that_keep_them_is_found(
    whole: Instance, paces_us: dict[str, int]
) -> None:
    least = {name: Fraction(10**6, pace) for name, pace in paces_us.items()}
    best = best_rate(whole, 18, paces_us)
    if best is None:
        with fails(InfeasibleError, "18", f"job '{min(paces_us)}'"):
            fill(whole, ["front"], WORK, slowdown=Fraction(6, 5), least=least)
        return
    found = fill(whole, ["front"], WORK, slowdown=Fraction(6, 5), least=least)
    assert found.details.status == "optimal" and found.details.rate == pytest.approx(float(best * 10**6))
    assert not check(found.instance, found.plan)
    assert all(found.plan.objective <= pace * found.details.iterations[name] for name, pace in paces_us.items())
    assert {job.name: job.pace_us for job in found.instance.jobs}.items() >= paces_us.items()


def test_a_background_job_with_a_cycle_time_limit_keeps_the_tighter_of_it_and_its_least_rate() -> None:
    whole = instance(THERE_AND_BACK, replace(line("a", ("z", 4)), pace_us=9), line("b", ("z", 5)))
    for least, pace in (({}, 9), ({"a": 10**6 / 8}, 8), ({"a": 1.5}, 9)):
        found = fill(whole, ["front"], WORK, least=least)
        assert found.instance.jobs[1].pace_us == pace and found.details.iterations["a"] >= 2


def test_the_foreground_guarantees_its_throughput_and_jobs_without_iterations_are_absent() -> None:
    whole = instance(THERE_AND_BACK, line("a", ("z", 4)), line("long", ("z", 14)))
    found = fill(whole, ["front"], WORK, slowdown=1.0)
    assert found.details.iterations == {"a": 2, "long": 0}
    assert [(job.name, job.pace_us) for job in found.instance.jobs] == [("front", 15), ("a", None)]
    assert found.objective == found.details.foreground_us
    assert found.details.foreground_bound_us == found.details.foreground_us


def test_nothing_fits_and_the_foreground_stays_as_it_is() -> None:
    whole = instance(THERE_AND_BACK, line("long", ("z", 14)))
    found = fill(whole, ["front"], WORK, slowdown=1)
    assert (found.details.status, found.details.rate, found.details.value, found.details.filled) == ("optimal", 0, 0, 0)
    assert found.plan.objective == 15


def test_a_bound_of_rates_holds_where_a_shorter_period_has_as_many_iterations() -> None:
    whole = instance(THERE_AND_BACK, line("long", ("z", 14)), gpus=3)
    loads = Loads(whole, ["front"], ["long"], 27, 15)
    assert loads.caps == (1,)
    assert loads.rate_bound() == Fraction(1, 15)
    found = fill(whole, ["front"], WORK, slowdown=1.8)
    assert (found.details.value, found.plan.objective, found.details.status) == (1, 15, "optimal")


def test_weights_decide_between_jobs() -> None:
    heavy = replace(line("b", ("z", 5)), weight=9)
    found = fill(instance(THERE_AND_BACK, line("a", ("z", 4)), heavy), ["front"], WORK, slowdown=1)
    assert found.details.iterations["b"] >= 1
    assert found.details.value == found.details.iterations["a"] + 9 * found.details.iterations["b"]


def test_a_bound_of_rates_holds_for_two_servers_of_unlike_types() -> None:
    slow = TaskGraphJob("slow", TaskGraph((Slot("z"),), (TaskGraphBlock("b", ("z",), {"old": 3}),)), 1)
    servers = (Server("s", "gpu", 2, 10**6, 10**6), Server("t", "old", 1, 10**6, 10**6))
    whole = Instance("types", Cluster(servers), {}, (THERE_AND_BACK, slow), "cyclic", "period")
    loads = Loads(whole, ["front"], ["slow"], 15, 15)
    assert loads.caps == (5,)
    assert loads.rate_bound() == Fraction(5, 15)


def test_what_makes_no_sense_is_named() -> None:
    with misuse("unknown-name foreground"):
        fill(CASES[0], ["nobody"], WORK)
    with misuse("unknown-option gap; unknown-option target"):
        fill(CASES[0], ["front"], replace(WORK, gap=0.1, target=9))
    with misuse("empty foreground"):
        fill(CASES[0], ["front", "a", "b"], WORK)
    with misuse("out-of-range slowdown"):
        fill(CASES[0], ["front"], WORK, slowdown=0.9)
    with misuse("out-of-range slowdown"):
        fill(CASES[0], ["front"], WORK, slowdown=101)
    with misuse("unknown-name least", "out-of-range least"):
        fill(CASES[0], ["front"], WORK, least={"front": 1, "a": 0})
    finite = replace(CASES[0], horizon="finite", objective="makespan")
    with pytest.raises(UsageError, match="finite"):
        fill(finite, ["front"], WORK)


def test_transfers_of_workers_on_two_servers_count_and_a_cycle_time_limit_is_kept() -> None:
    servers = tuple(Server(name, "gpu", 1, 10**6, 10**6) for name in ("s", "t"))
    links = tuple(Link(name, (name, "switch"), 10**6) for name in ("s", "t"))
    segments = tuple(Segment(name, {"gpu": 1}, {"gpu": 1}, 3, 0) for name in ("low", "high"))
    jobs = (replace(THERE_AND_BACK, pace_us=16), Job("spb", "m", 2, 1, depth=StaircaseDepth()))
    cluster = Cluster(servers, ("switch",), links)
    whole = Instance("links", cluster, {"m": Model(segments)}, jobs, "cyclic", "period")
    loads = Loads(whole, ["front"], ["spb"], 16, 15)
    # Bucket 1 has two contributors, 2 * 3 / 2 each way; bucket 2 has one, (0 + 1) * 3 / 2 and rounded up.
    assert loads.resources[-1].each_us == (2 * (3 + 2),)
    found = fill(whole, ["front"], WORK, slowdown=2)
    assert found.details.allowed_us == 16
    assert found.instance.jobs[0].pace_us == 16
    assert not check(found.instance, found.plan)
    assert found.details.status == "optimal"


def test_foreground_jobs_that_are_alike_each_get_a_server_of_their_own() -> None:
    servers = tuple(Server(name, "gpu", 3, 10**6, 10**6) for name in ("s", "t"))
    fronts = tuple(replace(THERE_AND_BACK, name=f"front{k}") for k in range(2))
    longer = line("longer", ("x", 9), ("y", 9))
    whole = Instance("twins", Cluster(servers), {}, (*fronts, replace(longer, name="b")), "cyclic", "period")
    found = alone(restricted(whole, {"front0": 1, "front1": 1}), lambda _: WORK)
    assert (found.plan.objective, found.bound) == (15, 15)
    assert [{gpu[0] for gpu in job.gpus} for job in found.plan.jobs] == [{"s"}, {"t"}]
    filled = fill(whole, ["front0", "front1"], replace(WORK, work_limit=2.0), slowdown=1.2)
    assert not check(filled.instance, filled.plan)
    assert filled.details.value >= 1
    # With a longer job beside them, the shorter one waits.
    both = alone(replace(whole, jobs=(fronts[0], longer)), lambda _: WORK)
    assert (both.plan.objective, both.bound) == (18, 18)
    assert not check(replace(whole, jobs=(fronts[0], longer)), both.plan)


def test_caps_that_time_cuts_short_are_still_caps() -> None:
    """The bound of a cap is lowered step by step; without time the first one stands, and it is none too small."""
    whole = CASES[2]
    exact, quick = (Loads(whole, ("front",), ("a", "b"), 30, 15, stop) for stop in (lambda: False, lambda: True))
    assert all(most >= least for most, least in zip(quick.caps, exact.caps, strict=True))
    assert quick.rate_bound() >= exact.rate_bound()


def test_nothing_more_is_placed_once_time_is_over() -> None:
    """The jobs that are not placed have no iterations, and the plan is that of the foreground."""
    whole = CASES[0]
    plan = alone(restricted(whole, {"front": 1}), lambda _: WORK).plan
    loads = Loads(whole, ("front",), ("a", "b"), 2 * plan.objective, plan.objective)
    found = {}
    for over in (False, True):
        search = PackingSearch(loads, plan, {"front": 1}, 0, lambda _: True, lambda _, over=over: over)  # type: ignore[misc]
        search.run()
        found[over] = sum(search.vector)
    assert found[False] > 0 and found[True] == 0


MEMORY = 10**9


def model(block_us: int, payload: int = 0) -> Model:
    return Model((Segment("s", {"v": 1}, {"v": block_us - 1}, payload, 0),))


def case(*background_us: int, exchange_us: int = 60, memory: int = MEMORY) -> Instance:
    """Blocks of 40 us on each of two servers with one GPU, and an exchange; a period of both without a hole hidden."""
    servers = tuple(Server(f"s{k}", "v", 1, memory, 10**9) for k in range(2))
    links = tuple(Link(f"l{k}", (server.name, "switch"), 10**6, 0) for k, server in enumerate(servers))
    models = {"f": model(40, exchange_us)} | {f"b{us}": model(us) for us in background_us}
    jobs = (Job("f", "f", 2, 1), *(Job(f"j{k}", f"b{us}", 1, 1) for k, us in enumerate(background_us)))
    return Instance("case", Cluster(servers, ("switch",), links), models, jobs, "cyclic", "period")


def counts(instance: Instance, slowdown: float) -> tuple[int, list[int]]:
    found = insert(instance, "f", slowdown)
    filled, plan = found
    assert not violations(filled, plan)
    first, *others = [job.iterations for job in filled.data_parallel]
    assert Fraction(plan.objective, first) <= Fraction(str(slowdown)) * 100
    return plan.objective, [first, *others]


@pytest.mark.parametrize(
    ("background_us", "slowdown", "found"),
    [
        ((30,), 1, (100, [1, 2])),  # in the exchange
        ((25,), 1, (100, [1, 2])),
        ((35,), 1.1, (110, [1, 2])),  # a longer hole takes one iteration more
        # Of 10 us each, two make room for a second iteration of 40 us behind every second one of the foreground.
        ((40,), 1.1, (220, [2, 3])),
        ((150,), 1.1, (990, [9, 1])),  # one long hole for a job that no exchange hides
        ((30, 20), 1, (100, [1, 2, 3])),  # the same holes on GPUs of their own
    ],
)
def test_holes_are_as_long_as_pays(
    background_us: tuple[int, ...], slowdown: float, found: tuple[int, list[int]]
) -> None:
    assert counts(case(*background_us), slowdown) == found


@pytest.mark.parametrize("background_us", [61, 10_000])
def test_none_where_an_iteration_fits_in_no_hole(background_us: int) -> None:
    assert insert(case(background_us), "f", 1) is None


def test_none_without_memory() -> None:
    states = case(30).models["f"].state_bytes
    assert insert(case(30, memory=states), "f", 1) is not None
    large = case(30, memory=states)
    models = {**large.models, "b30": model(30, 1)}
    assert insert(replace(large, models=models), "f", 1) is None


def test_none_on_gpus_that_differ_or_are_not_joined() -> None:
    first, second = case(30).cluster.servers
    other = Cluster((first, replace(second, gpu_type="w")), ("switch",), case(30).cluster.links)
    both = {
        name: Model((replace(model.segments[0], forward_us={"v": 1, "w": 1}, backward_us={"v": 8, "w": 8}),))
        for name, model in case(30).models.items()
    }
    assert insert(replace(case(30), cluster=other, models=both), "f", 1) is None
    assert insert(replace(case(30), cluster=Cluster((first, second))), "f", 1) is None


@pytest.mark.parametrize(
    ("instance", "foreground", "slowdown", "expected", "named"),
    [
        (replace(case(30), horizon="finite", objective="makespan"), "f", 1, "unsupported instance", "'case'"),
        (case(30), "j0", 1, "contradiction foreground", "'j0'"),
        (case(10, 10, 10), "f", 1, "wrong-count", "1 and 2"),
        (case(), "f", 1, "wrong-count", "1 and 2"),
        (case(30), "f", 0.9, "out-of-range slowdown", "9/10"),
        (replace(case(), jobs=(replace(case().jobs[0], depth=StaircaseDepth()),)), "f", 1, "unsupported", "full depth"),
    ],
)
def test_other_instances_are_refused(
    instance: Instance, foreground: str, slowdown: float, expected: str, named: str
) -> None:
    with misuse(expected, naming=[named]):
        insert(instance, foreground, slowdown)


def best_rate_of_holes(exchange_us: int, lengths: Sequence[int], slowdown: Fraction) -> Fraction:
    """By all choices of holes of at most four iterations, background work over the period; 0 where not all fit."""
    extra = (slowdown - 1) * (40 + exchange_us)
    most = exchange_us + int(4 * extra)
    multiples = {k * own for own in lengths for k in range(1, most // own + 1)}
    useful = sorted({exchange_us, *(length for length in multiples if exchange_us <= length <= most)})
    best = Fraction(0)
    for count in range(1, 5):
        for holes in combinations_with_replacement(useful, count):
            if max(holes) >= max(lengths) and sum(holes) - count * exchange_us <= count * extra:
                work = sum(hole // own * own for hole in holes for own in lengths)
                best = max(best, Fraction(work, sum(holes) + 40 * count))
    return best


def test_no_choice_of_few_holes_is_better() -> None:
    draw = random.Random(1)
    compared = 0
    for _ in range(40):
        exchange_us, lengths = draw.randint(5, 60), draw.sample(range(4, 70), draw.randint(1, 2))
        slowdown = draw.choice((Fraction(1), Fraction(21, 20), Fraction(13, 10)))
        best = best_rate_of_holes(exchange_us, lengths, slowdown)
        found = insert(case(*lengths, exchange_us=exchange_us), "f", slowdown)
        if best:
            filled, plan = found
            work = sum(job.iterations * own for job, own in zip(filled.data_parallel[1:], lengths, strict=True))
            assert Fraction(work, plan.objective) >= best
            compared += 1
    assert compared > 15
