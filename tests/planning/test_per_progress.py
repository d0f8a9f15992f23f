"""Objective over progress: the best ratio of brute force, bounds below it, and full depth where nothing less pays."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.cli.plans.solve import _below, _cell
from jigsaw_opt.documents import load_instance, load_plan, save_instance
from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning import per_progress
from jigsaw_opt.planning.per_progress import PerProgress, solve_per_progress
from jigsaw_opt.problem import (
    Cluster,
    Efficiency,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    JobExchange,
    Link,
    Model,
    Segment,
    Server,
)
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance, with_progress_limits
from tests.refusals import refused

NOISY, CALM = Efficiency((0, 60_000, 60_000), (1, 1, 1)), Efficiency((0, 100, 100), (1, 1, 1))
EFFORT = Options(threads=1, work_limit=20.0)


def shared(efficiency: Efficiency | None, bandwidth: int = 10**9, exchange: JobExchange | None = None) -> Instance:
    """Two jobs on the same two GPUs, behind a link."""
    segments = tuple(Segment(f"g{k}", {"v": 400}, {"v": 900}, 60_000, 300) for k in range(3))
    servers = tuple(Server(name, "v", 1, 10**9, 10**9) for name in ("s0", "s1"))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), bandwidth),))
    jobs = tuple(Job(name, "net", 2, 1, exchange=exchange) for name in ("a", "b"))
    return Instance("shared", cluster, {"net": Model(segments, efficiency=efficiency)}, jobs, "cyclic", "period")


def limited(instance: Instance, share: Fraction) -> Instance:
    depth = FreeDepth(min_progress=f"{share.numerator}/{share.denominator}")
    jobs = [job if not isinstance(job, Job) else replace(job, depth=depth) for job in instance.jobs]
    return replace(instance, jobs=tuple(jobs))


def shares(instance: Instance) -> set[Fraction]:
    """Every mean progress that any job can make, from the definition alone."""
    found: set[Fraction] = set()
    for job in instance.data_parallel_jobs:
        known = instance.models[job.model].efficiency
        assert known is not None
        depth = len(known.weight)
        rows = [own for own in product(range(1, depth + 1), repeat=job.workers) if max(own) == depth]
        for table in product(rows, repeat=job.iterations):
            found.add(Fraction(sum(map(known.progress, table)), job.iterations * known.most))
    return found


def with_efficiencies(seed: int) -> Instance:
    """An instance whose models have efficiencies: any small one, or two jobs for which less depth may pay."""
    goals = [("finite", "makespan"), ("cyclic", "period"), ("finite", "weighted_completion")]
    goal, random = goals[seed // 2 % 3], Random(seed)
    if seed % 2:
        made = random_instance(seed, *goal, operations=5)  # type: ignore[arg-type]
        made = replace(made, jobs=tuple(replace(job, release_us=0) for job in made.jobs))
        return limited(with_progress_limits(made, random), Fraction(0))
    cluster = Cluster((Server("s", "v", 2, 10**6, 10**6),))
    models = {}
    for name in ("m0", "m1"):
        segments = tuple(
            Segment(f"g{k}", {"v": 1}, {"v": random.randint(1, 3)}, random.randint(0, 2), 1) for k in range(2)
        )
        efficiency = Efficiency((0, random.choice((50, 100, 900))), (random.randint(0, 2), 1))
        models[name] = Model(segments, efficiency=efficiency)
    jobs = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(2))
    return Instance(f"pays-{seed}", cluster, models, jobs, *goal)  # type: ignore[arg-type]


def least_ratio(instance: Instance) -> Fraction | None:
    """The least objective over progress by brute force."""
    known = ((optimum(limited(instance, share)), share) for share in shares(instance))
    return min((best / share for best, share in known if best is not None), default=None)


def test_the_ratio_is_that_of_brute_force_and_no_bound_is_above_it() -> None:
    proven = infeasible = lower = 0
    for seed in range(30):
        instance = with_efficiencies(seed)
        found, least = solve_per_progress(instance, "cpsat", EFFORT), least_ratio(instance)
        if least is None:
            assert found.status is Status.INFEASIBLE and found.result.conflicts
            infeasible += 1
            continue
        assert found.ratio is not None and found.instance is not None and found.result.plan is not None
        assert found.bound <= least <= found.ratio, seed
        assert found.ratio - found.bound < found.ratio / 100, seed
        assert found.progress is not None and found.result.objective == found.ratio * found.progress
        assert check(found.instance, found.result.plan) == ()
        lower += found.progress < 1
        if found.status is Status.OPTIMAL:
            proven += 1
            assert found.ratio == least and found.stopped_by is StoppedBy.PROOF
    assert proven > 15 and lower > 3 and infeasible


def test_levels_are_lower_only_where_the_noise_says_that_it_pays() -> None:
    noisy, calm = (solve_per_progress(shared(known), options=EFFORT) for known in (NOISY, CALM))
    for found in (noisy, calm):
        assert found.status is Status.OPTIMAL and found.full_ratio == found.full.objective == found.full_bound
    assert noisy.progress == 1 and noisy.ratio == noisy.full_ratio and noisy.instance is not None
    assert all(job.depth.rule == "full" for job in noisy.instance.data_parallel_jobs)
    assert calm.progress is not None and calm.progress < 1
    assert calm.ratio is not None and calm.full_ratio is not None and calm.ratio < calm.full_ratio


def test_an_exchange_that_jobs_have_counts() -> None:
    exchange = JobExchange(4, "1/2", 900_000)
    found = solve_per_progress(shared(CALM, exchange=exchange), options=EFFORT)
    assert found.progress == Fraction(18, 5) and found.status is Status.OPTIMAL
    assert found.ratio == found.full_ratio == found.result.objective / Fraction(18, 5)


def test_the_same_work_gives_the_same_answer() -> None:
    instance = replace(shared(CALM), jobs=tuple(replace(job, iterations=3) for job in shared(CALM).data_parallel_jobs))

    def known(found: PerProgress) -> tuple[object, ...]:
        return found.ratio, found.bound, found.status, found.solves, found.result.plan and found.result.plan.jobs

    first, second = (solve_per_progress(instance, work_limit=0.4, threads=1) for _ in range(2))
    assert known(first) == known(second)


def test_a_cancel_keeps_the_best_plan() -> None:
    options, seen = Options(threads=1, work_limit=20.0), list[Event]()

    def told(event: Event) -> None:
        seen.append(event)
        options.cancel.set()

    found = solve_per_progress(shared(CALM), options=options, on_event=told)
    assert found.stopped_by is StoppedBy.INTERRUPT and found.result.plan is not None
    assert found.ratio is not None and seen[-1].objective == found.ratio and found.status is Status.FEASIBLE


def test_a_gap_ends_the_search() -> None:
    found = solve_per_progress(shared(CALM), gap=0.9, work_limit=20.0, threads=1)
    assert found.stopped_by is StoppedBy.GAP and found.gap is not None and 0 < found.gap <= 0.9


def varied(instance: Instance, exchanges: tuple[JobExchange | None, ...], share: Fraction) -> Instance | None:
    """The instance with an exchange of each job, and levels that make the share; None where they cannot."""
    jobs = []
    for job, exchange in zip(instance.data_parallel_jobs, exchanges, strict=True):
        worth = Fraction(exchange.progress if exchange else 10**6, 10**6)
        if share > worth:
            return None
        own = limited(instance, share / worth).data_parallel_jobs[0].depth
        full = exchange is not None and (exchange.every or 1) > 1
        jobs.append(replace(job, exchange=exchange, depth=FullDepth() if full else own))
    return replace(instance, jobs=tuple(jobs))


OFFERS = (
    (JobExchange(bytes="1/4", progress_ppm=950_000),),
    (JobExchange(bytes="1/4", progress_ppm=600_000),),
    (JobExchange(4, progress_ppm=900_000),),
    (JobExchange(bytes=0, progress_ppm=990_000), JobExchange(2, "1/2", 800_000)),
)


@pytest.mark.parametrize(("offered", "most"), [(0, 4), (1, 4), (2, 4), (2, 3), (3, 9), (3, 4)])
def test_the_choice_of_exchanges_is_that_of_brute_force(
    offered: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_progress, "_MOST_VARIANTS", most)  # With fewer than there are, not all are tried.
    link = Link("l", ("s0", "s1"), 2)
    cluster = Cluster((Server("s0", "v", 1, 10**6, 10**6), Server("s1", "v", 1, 10**6, 10**6)), (), (link,))
    segments = tuple(Segment(f"g{k}", {"v": 1}, {"v": 1 + k}, size, 1) for k, size in enumerate((8, 4)))
    model = Model(segments, efficiency=Efficiency((0, 400), (1, 1)))
    jobs = tuple(Job(f"j{k}", "m", 2, 1) for k in range(2))
    instance = Instance("links", cluster, {"m": model}, jobs)
    exchanges = OFFERS[offered]
    found = solve_per_progress(instance, "cpsat", replace(EFFORT, work_limit=200.0), exchanges=exchanges)
    every = list(product((None, *exchanges), repeat=2))
    worths = {Fraction(each.progress if each else 10**6, 10**6) for each in (None, *exchanges)}
    every_share = {worth * share for worth in worths for share in shares(instance)}
    made = ((varied(instance, each, share), share) for each in every for share in every_share)
    ratios = [best / share for one, share in made if one is not None and (best := optimum(one)) is not None]
    assert found.ratio is not None and found.instance is not None and found.result.plan is not None
    assert found.bound <= min(ratios) == found.ratio < found.full_ratio  # type: ignore[operator]
    assert check(found.instance, found.result.plan) == () and found.full.objective == found.full_ratio
    assert found.status is Status.OPTIMAL or len(every) > most


def test_full_depth_gets_half_of_the_limits_where_its_first_share_finds_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = list[float | None]()

    def hurried(instance: Instance, method: str, options: Options) -> Result:
        found = solve(instance, method, options)
        shares.append(options.work_limit)
        return replace(found, plan=None, status=Status.UNKNOWN) if len(shares) == 1 else found

    monkeypatch.setattr(per_progress, "solve", hurried)
    found = solve_per_progress(shared(CALM), options=EFFORT)
    assert shares[:2] == [5.0, 10.0]
    assert found.full.plan is not None and found.full_ratio == found.full.objective


def test_the_table_rounds_bounds_down_and_says_why_full_depth_has_no_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [_cell(name, 123_456.75) for name in ("bound", "objective_per_progress")] == ["123456", "123457"]
    assert [_cell(name, 12.3456789) for name in ("bound", "objective_per_progress")] == ["12.3456", "12.3457"]
    assert _cell("bound", 18210.0) == "18210" and _cell("bound", 0.0) == "0" and _cell("gap", 0.5) == "50.00 %"
    tenth = Fraction(1, 10)
    assert tenth - Fraction(1, 10**15) < Fraction(_below(tenth)) <= tenth < Fraction(float(tenth))

    def none(instance: Instance, method: str, options: Options) -> Result:
        found = solve(instance, method, options)
        return replace(found, plan=None, status=Status.UNKNOWN, stopped_by=StoppedBy.TIME)

    monkeypatch.setattr(per_progress, "solve", none)
    save_instance(shared(CALM), tmp_path / "given.json")
    assert main(["solve", str(tmp_path / "given.json"), "--per-progress", "--work-limit", "1"]) == 5
    told = "full depth, in half of the limits: no plan was found; a larger --work-limit or another --seed may find one"
    assert told in capsys.readouterr().err


def test_what_cannot_be_asked_is_refused() -> None:
    finite = replace(shared(CALM), horizon="finite", objective="makespan")
    first, second = finite.data_parallel_jobs
    released, due = replace(second, release_us=1), replace(first, deadline_us=10**9)
    for instance, option, problem in (
        (replace(finite, jobs=(first, released)), {}, "unsupported $.jobs[1].release_us"),
        (replace(finite, jobs=(due, second)), {}, "unsupported $.jobs[0].deadline_us"),
        (shared(None), {}, "unsupported instance"),
        (shared(CALM), {"target": 9}, "not-together target"),
    ):
        with pytest.raises(UsageError) as caught:
            solve_per_progress(instance, **option)  # type: ignore[arg-type]
        assert refused(caught.value) == [problem]


def test_the_command_writes_a_plan_and_its_instance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, plan, chosen = (str(tmp_path / name) for name in ("given.json", "plan.json", "chosen.json"))
    save_instance(shared(CALM), given)
    command = ["solve", given, "--per-progress", "--work-limit", "2", "--threads", "1"]
    assert main([*command, "-o", plan, "--chosen-instance", chosen]) == 0
    printed = capsys.readouterr().out
    assert "full depth" in printed and " % " in printed and "e+0" not in printed
    assert check(load_instance(chosen), load_plan(plan)) == ()
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["objective"] / told["progress"] == pytest.approx(told["objective_per_progress"])
    assert told["bound"] <= told["objective_per_progress"] < told["full_depth"]["objective_per_progress"]
    assert told["solve"]["objective"] == told["objective"]
    for more in (["-o", plan], ["--timeline"], ["--warm", plan], ["--target", "5"]):
        assert main([*command, *more]) == 2
    assert main([*command, "-o", given + ".new", "--chosen-instance", given + ".new"]) == 2
    for wrong in ("bytes", "evry=2", "every=0", "bytes=x", "every=2,every=3", "every=٣"):
        assert main([*command, "--offer-exchange", wrong]) == 2
    save_instance(shared(NOISY, bandwidth=10**5), given)
    capsys.readouterr()
    assert main([*command, "--offer-exchange", "bytes=0,progress_ppm=999999"]) == 0
    assert "bytes=0, progress_ppm=999999" in capsys.readouterr().out
    for more in (["--chosen-instance", chosen], ["--offer-exchange", "every=2"]):
        assert main(["solve", given, *more]) == 2
    save_instance(shared(None), given)
    capsys.readouterr()
    assert main(command) == 2 and "--offer-exchange, such as bytes=1/4" in capsys.readouterr().err
    save_instance(replace(shared(CALM), jobs=(Job("a", "net", 3, 1),)), given)
    assert main(command) == 4
