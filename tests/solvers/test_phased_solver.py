"""Phased plans that are made: correct, within their bound, and the optimum where that is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_plan, save_instance
from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import (
    Block,
    Cluster,
    FreeDepth,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    Model,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.compiled.operations import is_long
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import solver
from jigsaw_opt.solvers.phased.phases import compact
from jigsaw_opt.solvers.phased.shelves import cyclic_part, iteration_counts, sharing_groups
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.result import Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.phased_referee import accepts

NET = Model((Segment("body", {"v": 3}, {"v": 6}, 10, 40), Segment("head", {"v": 1}, {"v": 2}, 5, 1)), state_factor=1)
ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))


def cluster(memory: int = 200) -> Cluster:
    servers = tuple(Server(name, "v", 2, memory, 10**6) for name in ("x", "y"))
    return Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1),))


def instance(*jobs: Job, memory: int = 200, objective: str = "makespan") -> Instance:
    return Instance("long", cluster(memory), {"net": NET, "one": ONE}, jobs, "finite", objective)  # type: ignore[arg-type]


def solved(asked: Instance) -> tuple[Status, int, int]:
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    assert result.bound <= result.plan.objective
    return result.status, result.plan.objective, len(result.plan.groups)


def test_jobs_that_share_nothing_run_at_their_own_speed() -> None:
    """A job of each GPU: blocks of 10 us without a gap, so that the longest decides."""
    jobs = [Job(f"j{k}", "one", 1, 10**6 + k) for k in range(4)]
    assert solved(instance(*jobs)) == (Status.OPTIMAL, 10 * (10**6 + 3), 4)


def test_jobs_of_one_gpu_follow_smiths_rule() -> None:
    servers = (Server("x", "v", 1, 200, 10**6),)
    jobs = (Job("long", "one", 1, 3000), Job("short", "one", 1, 1000), Job("heavy", "one", 1, 2000, weight=9))
    asked = replace(instance(*jobs, objective="weighted_completion"), cluster=Cluster(servers))
    ends = {"heavy": 20_000, "short": 30_000, "long": 60_000}
    _, objective, groups = solved(asked)
    assert (objective, groups) == (9 * ends["heavy"] + ends["short"] + ends["long"], 1)
    assert solved(replace(asked, objective="makespan"))[:2] == (Status.OPTIMAL, 60_000)


def test_jobs_with_gpus_of_their_own_keep_their_speeds_beside_one_another() -> None:
    """`wide` needs both GPUs of the server; the others run side by side, the fast one at eight times the speed."""
    slow = Model((Segment("s", {"v": 40}, {"v": 40}, 0, 30),))
    jobs = (Job("wide", "net", 2, 900_000), Job("fast", "one", 1, 8_000), Job("slow", "slow", 1, 1_000))
    servers = (Server("x", "v", 2, 200, 10**6),)
    asked = instance(jobs[1], objective="weighted_completion")
    asked = replace(asked, cluster=Cluster(servers), models={**asked.models, "slow": slow}, jobs=jobs)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None
    first = result.plan.groups[0].phases[0]
    assert [(job.name, len(job.iterations)) for job in first.jobs] == [("fast", 8), ("slow", 1)]
    assert (first.period_us, first.repeats) == (80, 1_000)


@pytest.mark.parametrize(("balance", "least"), [(0, 0), (1, 0), (499, 0), (500, 1)])
def test_balance_is_kept_over_all_repetitions(balance: int, least: int) -> None:
    """A worker that is a level ahead in every iteration is 500 levels ahead in all."""
    asked = instance(Job("j", "net", 2, 500, depth=FreeDepth(balance=balance)))
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == () and accepts(asked, result.plan)
    part = cyclic_part(asked, {"j": 1}).jobs[0]
    assert isinstance(part, Job) and part.depth == FreeDepth(balance=least)


def test_a_worker_takes_the_memory_of_its_deepest_level_in_all_phases() -> None:
    """Two jobs whose levels fit beside one another only as long as each keeps its own."""
    jobs = [Job(name, "net", 2, 501, depth=StaircaseDepth()) for name in "ab"]
    for memory in range(60, 130, 20):
        asked = instance(*jobs, memory=memory)
        asked = replace(asked, cluster=Cluster((Server("x", "v", 2, memory, 10**6),)))
        result = solve(asked, "phased", Options(threads=1))
        assert result.plan is None or check(asked, result.plan) == ()


def test_time_that_is_left_is_used() -> None:
    tiny = instance_from("tiny/036")
    asked = replace(tiny, jobs=tuple(replace(job, iterations=1000 * job.iterations) for job in tiny.jobs))
    result = solve(asked, "phased", Options(threads=1, time_limit=4))
    assert result.stopped_by is StoppedBy.TIME or result.status is Status.OPTIMAL
    assert result.plan is not None and check(asked, result.plan) == ()


def test_placements_of_other_seeds_follow_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs with all placings behind them: by a clock of calls, the turns go on, each with a seed of its own."""
    turns: list[int] = []

    def placed(timer: PhaseTimer, name: str, share: float, part: Instance, turn: int = 0) -> None:
        turns.append(turn)
        raise UntimedError("no plan is needed")

    monkeypatch.setattr(PhaseTimer, "placed", placed)
    monkeypatch.setattr(PhaseTimer, "is_over", property(lambda _: len(turns) > 40))
    monkeypatch.setattr(solver, "_searched", lambda *_: iter(()))
    jobs = [Job(f"j{k}", "net", 2, 1000 + k) for k in range(2)]
    assert solve(instance(*jobs), "phased", Options(threads=1, time_limit=1000)).plan is None
    assert sorted(set(turns)) == [0, 1, 2]


def test_a_time_limit_is_kept() -> None:
    jobs = [Job(f"j{k}", "net", 2, 1000 + k) for k in range(6)]
    asked = instance(*jobs, objective="weighted_completion")
    result = solve(asked, "phased", Options(threads=1, time_limit=0.3))
    assert result.plan is not None and check(asked, result.plan) == ()


def test_a_work_limit_gives_the_same_plan_again() -> None:
    jobs = [Job(f"j{k}", "net", 2, 1000 + k) for k in range(4)]
    asked = instance(*jobs, objective="weighted_completion")
    results = [solve(asked, "phased", Options(threads=1, work_limit=work)) for work in (0.0, 0.3, 0.3)]
    assert {result.stopped_by for result in results} == {StoppedBy.TIME}
    first, one, other = (result.plan for result in results)
    assert first is not None and check(asked, first) == ()
    assert one is not None and other is not None and one.groups == other.groups
    assert one.objective <= first.objective


@pytest.mark.slow
def test_releases_and_deadlines_are_kept() -> None:
    jobs = (
        Job("a", "net", 2, 50_000, depth=StaircaseDepth()),
        Job("b", "net", 2, 20_000, release_us=333_333, depth=FreeDepth(balance=1)),
        Job("c", "one", 1, 70_000, release_us=1_000, weight=3),
    )
    for objective in ("makespan", "weighted_completion"):
        solved(instance(*jobs, objective=objective))
    soon = replace(jobs[2], deadline_us=10)
    result = solve(instance(*jobs[:2], soon), "phased", Options(threads=1))
    assert result.plan is None and result.status is Status.INFEASIBLE
    tight = replace(jobs[2], deadline_us=701_000)
    asked = instance(*jobs[:2], tight)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is None or check(asked, result.plan) == ()


def test_jobs_that_do_not_fit_together_take_turns() -> None:
    """Memory for one worker on a GPU: six jobs on four GPUs."""
    jobs = [Job(f"j{k}", "net", 1, 1000) for k in range(6)]
    status, objective, _ = solved(instance(*jobs, memory=60))
    assert (status, objective) == (Status.OPTIMAL, 2 * 12_000)


@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize(("objective", "least"), [("makespan", 15), ("weighted_completion", 4 + 10 + 15)])
def test_an_urgent_job_goes_first_though_it_is_released_later(times: int, objective: str, least: int) -> None:
    """A GPU with memory for one job: the job that could begin at 0 would keep the urgent one out."""
    models = {str(us): Model((Segment("s", {"v": us}, {"v": 0}, 1, 0),)) for us in (3, 5, 6)}
    jobs = (
        Job("a", "3", 1, times, release_us=times, deadline_us=4 * times),
        Job("b", "5", 1, times, release_us=9 * times, deadline_us=20 * times),
        Job("c", "6", 1, times, deadline_us=10 * times),
    )
    asked = Instance("late", Cluster((Server("x", "v", 1, 4, 10**6),)), models, jobs, "finite", objective)  # type: ignore[arg-type]
    assert solved(asked)[1] == least * times


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match="is cyclic"):
        solve(Instance("c", cluster(), {"one": ONE}, (Job("j", "one", 1, 1),), "cyclic", "period"), "phased")
    wide = solve(instance(Job("j", "one", 5, 10)), "phased")
    assert wide.status is Status.INFEASIBLE and wide.conflicts


def test_only_what_no_other_plan_is_written_for_is_long() -> None:
    assert not is_long(instance(Job("j", "one", 1, 10**7)))
    assert is_long(instance(Job("j", "one", 1, 10**7), Job("k", "net", 2, 10**7)))


def test_iterations_of_a_period_follow_what_remains() -> None:
    assert iteration_counts({"a": 500, "b": 500}) == {"a": 1, "b": 1}
    assert iteration_counts({"a": 1000, "b": 500, "c": 10}) == {"a": 4, "b": 2, "c": 1}
    assert iteration_counts({"slow": 1 / 30, "fast": 1 / 10}, 6) == {"slow": 1, "fast": 3}


def test_jobs_are_grouped_by_gpus_and_by_links() -> None:
    asked = instance(*(Job(name, "net", 2, 1) for name in "abc"), Job("d", "one", 1, 1))
    places = {"a": ("x/0", "y/0"), "b": ("x/1", "y/1"), "c": ("x/0", "x/1"), "d": ("y/1",)}
    assert sharing_groups(asked, places) == [["a", "b", "c", "d"]]
    apart = replace(asked, jobs=(asked.jobs[0], asked.jobs[3]))
    assert sharing_groups(apart, {name: places[name] for name in "ad"}) == [["a"], ["d"]]


def test_a_phase_begins_where_a_repetition_is_shortest() -> None:
    def job(name: str, start: int, end: int) -> JobPlan:
        return JobPlan(name, ("x/0",), (Iteration((Block(1, start, end),), ()),))

    moved = compact((job("a", 38, 45), job("b", 5, 8)), 10)
    spans = {each.name: (each.iterations[0].blocks[0].start_us, each.iterations[0].blocks[0].end_us) for each in moved}
    assert spans == {"a": (0, 7), "b": (7, 10)}


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=6))
def test_the_shortest_repetition_is_found_among_all(period_us: int, spans: list[tuple[int, int]]) -> None:
    jobs = [
        JobPlan(f"{k}", ("x/0",), (Iteration((Block(1, start, start + span),), ()),))
        for k, (start, span) in enumerate(spans)
    ]
    moved = [each.iterations[0].blocks[0] for each in compact(jobs, period_us)]
    assert [(each.start_us - start) % period_us for each, (start, _) in zip(moved, spans, strict=True)] == [
        (moved[0].start_us - spans[0][0]) % period_us
    ] * len(spans)
    assert all(0 <= each.start_us < period_us for each in moved)
    lasting = (max((start - at) % period_us + span for start, span in spans) for at, _ in spans)
    assert max(each.end_us for each in moved) == min(lasting)


def test_no_part_of_the_jobs_is_placed_once_the_limit_is_over() -> None:
    asked = instance(Job("a", "one", 1, 1))
    late = SolveState("phased", compile_instance(asked), Options(time_limit=1.0), lambda _: None)
    late.started -= 60
    timer = PhaseTimer(late)
    with pytest.raises(OutOfTimeError):
        timer.placed("greedy", 1.0, replace(asked, horizon="cyclic", objective="period"))
    with pytest.raises(OutOfTimeError):
        timer.timed((), {"a": 1}, {"a": ("x/0",)})


def test_causes_of_a_job_are_told_for_each_job_like_it() -> None:
    big = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 3000),))
    jobs = (Job("a", "big", 1, 5), Job("b", "big", 1, 5), Job("c", "one", 1, 5))
    asked = replace(instance(jobs[2]), models={"big": big, "one": ONE}, jobs=jobs)
    assert [each.jobs for each in certain_causes(compile_instance(asked))] == [("a",), ("b",)]


def test_the_command_makes_a_phased_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(instance(Job("j", "one", 1, 10**9), Job("k", "one", 1, 10**9)), path)
    assert main(["solve", str(path), "--json", "-o", str(plan)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["objective"], told["solver"]) == ("optimal", 10**10, "phased")
    assert load_plan(plan).objective == 10**10
    assert main(["check", str(path), str(plan)]) == 0
    assert main(["solve", str(path), "--solver", "phased", "--timeline"]) == 0
    assert "group 1 phase 0" in capsys.readouterr().out


def test_route_policies_are_kept() -> None:
    """The fast link between the servers is avoided: buckets of 15 and 10 bytes take ten times as long."""
    servers = tuple(Server(name, "v", 1, 200, 10**6) for name in ("x", "y"))
    fast = (Link("fast", ("x", "y"), 10**6, 0),)
    slow = (Link("xh", ("x", "h"), 10**5, 0), Link("hy", ("h", "y"), 10**5, 0))
    around = {"around": RoutePolicy(avoid_links=("fast",))}
    free = replace(instance(Job("j", "net", 2, 5000)), cluster=Cluster(servers, ("h",), (*fast, *slow), around))
    bound = replace(free, jobs=(Job("j", "net", 2, 5000, route_policy="around"),))
    assert solved(free)[0] is solved(bound)[0] is Status.OPTIMAL
    assert solved(bound)[1] > 5 * solved(free)[1]
