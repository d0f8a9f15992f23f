"""One call for all solving: options by keyword, and a plan to start from for every method."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import fields, replace
from typing import Any, Literal

import pytest

import jigsaw_opt as jo
from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, decoding, encode_instance, encoding, parsing
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Plan, Segment, Server
from jigsaw_opt.problem.rules import part
from jigsaw_opt.solvers.options import GivenOptions, Options
from jigsaw_opt.solvers.portfolio import auto
from jigsaw_opt.solvers.registry import find, ignored, loadable_solvers, names
from jigsaw_opt.solvers.resolve import Fix, openings
from jigsaw_opt.solvers.resolve.remaining import listed
from jigsaw_opt.solvers.resolve.repaired import Repaired
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.random_instances import random_instance
from tests.random_task_graphs import random_task_graph_instance
from tests.refusals import carries, misuse

ONE: dict[str, Any] = {"threads": 1, "work_limit": 0.1}


def chosen(horizon: Literal["finite", "cyclic"] = "finite") -> tuple[Instance, Plan]:
    """An instance, and a better plan of it than `greedy` has."""
    for seed in range(20):
        instance = generate("server", seed)
        if horizon == "cyclic":
            jobs = tuple(replace(job, release_us=0, iterations=2) for job in instance.jobs)
            instance = replace(instance, jobs=jobs, horizon="cyclic", objective="period")
        first, best = solve(instance, "greedy").plan, solve(instance, "search", threads=1, work_limit=0.1).plan
        if first is not None and best is not None and best.objective < first.objective:
            return instance, best
    raise AssertionError("no seed has such a plan")


@pytest.fixture(scope="module")
def finite() -> tuple[Instance, Plan]:
    pytest.importorskip("ortools")
    return chosen()


class Idle:
    """A solver that finds nothing."""

    name = display_name = "idle"

    def unavailable(self) -> str | None:
        return None

    def unsupported(self, instance: Instance) -> str | None:
        return None

    def run(self, solve_state: SolveState) -> Result:
        return solve_state.result(StoppedBy.COMPLETED)


def test_options_go_by_keyword_as_in_their_object(finite: tuple[Instance, Plan]) -> None:
    instance, _ = finite
    by_name, by_object = (solve(instance, "search", **ONE), solve(instance, "search", Options(**ONE)))
    assert by_name.plan is not None and by_object.plan is not None and by_name.plan.jobs == by_object.plan.jobs
    both = solve(instance, "search", Options(threads=1), work_limit=0.1)
    assert both.plan is not None and both.plan.jobs == by_name.plan.jobs
    assert set(GivenOptions.__annotations__) == {field.name for field in fields(Options)}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"time_limt": 1, "seed": 2}, "there is no option 'time_limt'; did you mean 'time_limit'?"),
        ({"seed": -1, "time_limt": 1, "gap": -1}, "there is no option 'time_limt'; did you mean 'time_limit'?; gap is"),
        ({"options": Options(gap=0.1), "gap": 0.2}, "gap is given twice: in the options and by keyword"),
        ({"options": Options(), "cancel": Options().cancel}, "cancel is given twice"),
        ({"params": jo.SearchParams(without=("x",))}, "solver 'greedy' takes no option params"),
        ({"method": "phased", "survivable": True}, "solver 'phased' takes no option survivable"),
        ({"fix": Fix(before_us=3)}, "what is fixed is part of a plan"),
    ],
)
def test_options_that_mean_nothing_are_refused(given: dict[str, Any], told: str) -> None:
    instance = random_instance(1, "finite", "makespan", 4)
    with pytest.raises(jo.UsageError) as caught:
        solve(instance, **{"method": "greedy", **given})
    assert "; ".join(caught.value.args).startswith(told)


def test_every_method_says_what_it_takes_and_takes_the_limits() -> None:
    limits = Options(time_limit=1, gap=0.1, target=1, no_improvement=1, work_limit=1, seed=3, without_bounds=("x",))
    for name in names():
        if hasattr(find(name), "takes"):
            assert ignored(find(name), limits) == ()
    assert ignored(find("cpsat"), Options(params=jo.SearchParams(without=("x",)))) == ("params",)
    assert ignored(Idle(), limits) == ()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "portfolio", "search", "cpsat", "greedy", "ilp", "phased", Idle()])
def test_no_method_is_worse_than_its_start(method: Any, finite: tuple[Instance, Plan]) -> None:
    if method == "ilp":
        pytest.importorskip("pulp")
        pytest.importorskip("highspy")
    instance, plan = finite
    seen: list[Event] = []
    limits = {"threads": 1, "time_limit": 5} if method == "phased" else ONE
    result = solve(instance, method, start=plan, on_event=seen.append, **limits)
    assert result.plan is not None and result.objective is not None and not jo.check(instance, result.plan)
    assert result.objective <= plan.objective and result.status in (Status.OPTIMAL, Status.FEASIBLE)
    if method == "phased":
        again = solve(instance, method, start=plan, fix=Fix(), **limits).objective
        assert again is not None and again <= plan.objective
    else:
        assert next(event.objective for event in seen if event.objective is not None) == plan.objective


@pytest.mark.slow
def test_a_period_starts_from_a_plan_too() -> None:
    pytest.importorskip("ortools")
    instance, plan = chosen("cyclic")
    result = solve(instance, "greedy", start=plan)
    assert result.objective == plan.objective and result.plan is not None and not jo.check(instance, result.plan)


@pytest.mark.parametrize("fix", [None, Fix()])
@pytest.mark.parametrize("method", ["auto", "cpsat", "phased"])
def test_jobs_with_a_task_graph_start_from_a_correct_plan(method: str, fix: Fix | None) -> None:
    pytest.importorskip("ortools")
    instance = random_task_graph_instance(3)
    plan = solve(instance, "greedy").plan
    assert plan is not None
    limits: dict[str, Any] = {"threads": 1, "time_limit": 5} if method == "phased" else ONE
    result = solve(instance, method, start=plan, fix=fix, **limits)
    assert result.objective is not None and result.objective <= plan.objective
    assert result.plan is not None and not jo.check(instance, result.plan)


def test_a_start_that_is_wrong_is_refused_with_every_rule_it_breaks(finite: tuple[Instance, Plan]) -> None:
    instance, plan = finite
    wrong = replace(plan.with_jobs(plan.jobs[:-1]), objective=plan.objective + 1)
    with pytest.raises(jo.InvalidInputError) as caught:
        solve(instance, "greedy", start=wrong)
    assert len(caught.value.problems) == len(jo.check(instance, wrong)) >= 1
    assert all(problem.path.startswith("start: $") for problem in caught.value.problems)


@pytest.mark.parametrize("method", ["cpsat", "greedy"])
def test_a_plan_of_another_instance_is_repaired_for_any_method(method: str, finite: tuple[Instance, Plan]) -> None:
    instance, plan = finite
    changed = replace(instance, jobs=(*instance.jobs, replace(instance.jobs[0], name="late")))
    result = solve(changed, method, start=plan, fix=Fix(), **ONE)
    assert result.plan is not None and not jo.check(changed, result.plan)
    with misuse("unsupported fix", naming=[method]):
        solve(changed, method, start=plan, fix=Fix(before_us=1))


def test_a_repair_that_time_ends_leaves_a_correct_start(
    finite: tuple[Instance, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, plan = finite
    monkeypatch.setattr(Repaired, "offer", lambda *_: StoppedBy.TIME)
    result = solve(instance, start=plan, fix=Fix())
    assert (result.objective, result.status, result.stopped_by) == (plan.objective, Status.FEASIBLE, StoppedBy.TIME)
    assert result.plan is not None and not jo.check(instance, result.plan)
    assert solve(instance, start=plan, fix=Fix(before_us=1)).plan is None
    assert solve(replace(instance, name="other"), start=plan, fix=Fix(), listed=True).plan is None


def test_a_phased_plan_starts_what_makes_phased_ones() -> None:
    net = Model((Segment("l", {"v": 3}, {"v": 4}, 5, 6),))
    jobs = (Job("a", "net", 1, 10**8), Job("b", "net", 1, 10**8))
    instance = Instance("long", Cluster((Server("s", "v", 1, 100, 10**6),)), {"net": net}, jobs)
    plan = solve(instance, threads=1).plan
    assert plan is not None and plan.is_phased
    for method in ("auto", "phased"):
        again = solve(instance, method, start=plan, threads=1).objective
        assert again is not None and again <= plan.objective
    with misuse("unsupported start", naming=["'greedy'"]):
        solve(instance, "greedy", start=plan)


def test_listed_plans_are_tried_from_a_phased_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs whose blocks and transfers overlap best where no period is repeated."""
    net = Model((Segment("l", {"v": 3}, {"v": 4}, 5, 6),))
    jobs = (Job("a", "net", 2, 3), Job("b", "net", 2, 2, release_us=5))
    link = Link("xy", ("x", "y"), 10**6)
    instance = Instance(
        "short",
        Cluster((Server("x", "v", 1, 100, 10**6), Server("y", "v", 1, 100, 10**6)), (), (link,)),
        {"net": net},
        jobs,
    )
    plan = solve(instance, "phased", threads=1).plan
    assert plan is not None and plan.is_phased
    # The phased plan with its iterations listed is where the other methods begin.
    listing = listed(plan)
    assert not check(instance, replace(listing, bound=plan.bound)) and listing.objective == plan.objective
    result = solve(instance, "auto", start=plan, threads=1)
    alone = solve(instance, "auto", threads=1)
    assert result.objective is not None and result.objective == alone.objective
    monkeypatch.setattr(auto, "_listed", lambda *_, **__: pytest.fail("a plan that cannot be listed was begun"))
    for module in (auto, openings):
        monkeypatch.setattr(module, "is_long", lambda *_: True)
    again = solve(instance, "auto", start=plan, threads=1)
    assert again.plan is not None and again.plan.is_phased


def test_a_solve_warns_of_nothing(finite: tuple[Instance, Plan]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve(finite[0], "greedy", threads=1, seed=3).plan is not None
        assert replace(Options(threads=3), seed=2).threads == 3


def test_all_options_that_are_out_of_range_are_told_at_once() -> None:
    wrong: Any = {"gap": -1, "threads": 0, "seed": -1}
    with pytest.raises(jo.UsageError) as caught:
        Options(**wrong)
    assert [told.partition(" ")[0] for told in caught.value.args] == ["gap", "threads", "seed"]
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    kinds: Any = {"engine_parameters": [1], "params": {}, "without_bounds": "gpu_work", "listed": 3, "cancel": True}
    with pytest.raises(jo.UsageError) as caught:
        Options(gap="x", **kinds)
    assert [told.partition(" ")[0] for told in caught.value.args] == ["gap", *kinds]
    assert carries(caught.value.args, "without", "'gpu_work'")


def test_options_go_to_other_processes_with_a_flag_of_their_own() -> None:
    options = Options(gap=0.1, threads=2, params=jo.SearchParams(without=("x",)))
    for made in (pickle.loads(pickle.dumps(options)), copy.deepcopy(options)):
        assert made == options and made.cancel is not options.cancel and not made.cancel.is_set()
    options.cancel.set()
    assert copy.deepcopy(options).cancel.is_set() and copy.copy(options).cancel is options.cancel


def test_phased_is_a_method_like_others() -> None:
    assert "phased" in loadable_solvers() and find("phased").unavailable() is None
    instance = random_instance(1, "finite", "makespan", 4)
    with misuse("unknown-name method", naming=["'phasd'", "'phased'"]):
        solve(instance, "phasd")
    with misuse("unknown-option survivable"):
        solve(instance, "phased", survivable=True)
    listed = solve(instance, "greedy").plan
    fewer = replace(instance, jobs=instance.jobs[:-1])
    result = solve(fewer, "phased", start=listed, fix=Fix(), threads=1)
    assert result.plan is not None and result.plan.is_phased and not jo.check(fewer, result.plan)
    with misuse("unsupported fix"):
        solve(fewer, "phased", start=listed, fix=Fix(before_us=1), threads=1)


def test_a_receiver_of_events_is_a_function() -> None:
    receiver: Any = 3
    with misuse("wrong-type on_event"):
        solve(random_instance(1, "finite", "makespan", 4), "greedy", on_event=receiver)


def test_an_instance_is_hashed_once_and_never_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built = random_instance(1, "finite", "makespan", 4)
    read = decode_instance(encode_instance(built))
    made = replace(read, jobs=read.jobs)
    hashed: list[Instance] = []
    canonical = encoding.canonical_json
    monkeypatch.setattr(encoding, "canonical_json", lambda each: (hashed.append(each), canonical(each))[1])
    looked: list[object] = []
    for module, name in ((decoding, "structure"), (parsing, "parse"), (encoding, "_pretty")):
        monkeypatch.setattr(module, name, lambda *each: looked.append(each))
    monkeypatch.setattr(part, "structure_of_part", lambda each: looked.append)
    for instance in (read, read, made, made):
        result = solve(instance, "greedy")
        assert result.plan is not None and jo.check(instance, result.plan) == ()
    assert (len(looked), len(hashed)) == (0, 2)
    assert pickle.loads(pickle.dumps(read)) == read == copy.copy(read)


def test_infinite_limits_are_none() -> None:
    options = Options(time_limit=float("inf"), work_limit=float("inf"), no_improvement=float("inf"))
    assert options.given == () and not options.clocked
