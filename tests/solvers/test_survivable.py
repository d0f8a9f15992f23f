"""Plans that outlive the failure of any one link."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, load_instance
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Plan, Segment, Server
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailureEffects
from jigsaw_opt.solvers.resolve.survivable import bridges
from jigsaw_opt.solvers.result import Event, Result, Status
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries, misuse
from tests.solvers.test_failures import chained

pytest.importorskip("ortools")
QUICK = Options(threads=1, work_limit=0.01)


def fast_and_slow(deadline_us: int) -> Instance:
    """A job of two workers: quick on a and b, whose short way has a slow detour, or slow on the two GPUs of c."""
    servers = (
        Server("a", "v", 1, 10**6, 10**6),
        Server("b", "v", 1, 10**6, 10**6),
        Server("c", "w", 2, 10**6, 10**6),
    )
    ways = (("ab", "a", "b", 10**6), ("as", "a", "s", 10**4), ("bs", "b", "s", 10**4), ("cs", "c", "s", 10**6))
    links = tuple(Link(name, (one, other), rate) for name, one, other, rate in ways)
    models = {"m": Model((Segment("s", {"v": 4, "w": 20}, {"v": 6, "w": 20}, 10, 0),), state_factor=1)}
    job = Job("j", "m", 2, 1, deadline_us=deadline_us)
    return Instance("fast-and-slow", Cluster(servers, ("s",), links), models, (job,))


def require_survivable(instance: Instance, result: Result) -> None:
    assert result.plan is not None and check(instance, result.plan) == ()
    for effect in FailureEffects(instance, result.plan).each(("link",)):
        assert not effect.stopped and not effect.broken


def test_bridges_are_links_that_part_the_cluster() -> None:
    assert bridges(fast_and_slow(100).cluster) == {"cs"}
    assert bridges(chained().cluster) == frozenset()


@pytest.mark.parametrize("solver", ["auto", "cpsat", "greedy", "search"])
def test_no_job_on_servers_that_a_bridge_parts(solver: str) -> None:
    """Two jobs of two workers, a GPU in every third server: both on a server of their own."""
    servers = tuple(Server(name, "v", gpus, 10**6, 10**4) for name, gpus in (("a", 2), ("b", 1), ("c", 1)))
    links = tuple(Link(f"l{server.name}", (server.name, "hub"), 10**9) for server in servers)
    models = {"m": Model((Segment("s", {"v": 40}, {"v": 60}, 10, 0),), state_factor=1)}
    jobs = tuple(Job(name, "m", 2, 2) for name in ("x", "y"))
    instance = Instance("star", Cluster(servers, ("hub",), links), models, jobs)
    events: list[tuple[Event, Plan | None]] = []
    plain = solve(instance, solver, QUICK)
    survivable = solve(
        instance, solver, QUICK, survivable=True, on_event=lambda event: events.append((event, event.plan))
    )
    require_survivable(instance, survivable)
    assert plain.objective is not None and survivable.objective is not None and survivable.objective > plain.objective
    assert survivable.status is Status.FEASIBLE and survivable.bound <= plain.objective
    # What is proven of the cluster without its bridges is said of no event either.
    assert all(event.bound <= plain.objective for event, _ in events)
    assert all(event.bound <= plain.objective for event in survivable.trajectory)
    plans = [plan for _, plan in events if plan is not None]
    assert plans and all(check(instance, plan) == () for plan in plans)
    assert survivable.plan is not None and {job.gpus for job in survivable.plan.jobs} <= {
        ("a/0", "a/1"),
        ("a/1", "a/0"),
    }


@pytest.mark.parametrize("solver", ["auto", "cpsat", "greedy", "search"])
def test_a_plan_that_keeps_its_deadline_whatever_link_fails(solver: str) -> None:
    instance = fast_and_slow(200)
    plain, survivable = solve(instance, solver, QUICK), solve(instance, solver, QUICK, survivable=True)
    assert plain.plan is not None and plain.plan.jobs[0].gpus[0] in ("a/0", "b/0")
    require_survivable(instance, survivable)
    assert plain.objective is not None and survivable.objective is not None and survivable.objective > plain.objective
    assert survivable.status is Status.FEASIBLE and survivable.bound <= plain.objective


def test_an_instance_without_such_a_plan_has_the_bound_of_all_plans() -> None:
    """Two workers on servers that one link joins."""
    servers = (Server("a", "v", 1, 10**6, 10**4), Server("b", "v", 1, 10**6, 10**4))
    models = {"m": Model((Segment("s", {"v": 40}, {"v": 60}, 10, 0),), state_factor=1)}
    cluster = Cluster(servers, (), (Link("ab", ("a", "b"), 10**6),))
    instance = Instance("pair", cluster, models, (Job("x", "m", 2, 2),))
    plain, none = solve(instance, "auto", QUICK), solve(instance, "auto", QUICK, survivable=True)
    assert none.status is Status.INFEASIBLE and none.plan is None
    assert plain.objective is not None and none.bound <= plain.objective


def test_task_graph_jobs_and_instances_without_such_a_plan() -> None:
    """One job with one placement, which takes 12, and 16 over the detour."""
    jobs = [replace(chained().jobs[0], deadline_us=deadline) for deadline in (15, 16)]
    tight, loose = (solve(replace(chained(), jobs=(job,)), "auto", QUICK, survivable=True) for job in jobs)
    assert tight.status is Status.UNKNOWN and tight.plan is None
    assert (loose.status, loose.objective) == (Status.OPTIMAL, 12)
    limited = replace(chained(cyclic=True).jobs[0], pace_us=7)
    assert solve(replace(chained(cyclic=True), jobs=(limited,)), "auto", QUICK, survivable=True).plan is None
    cluster = chained().cluster
    star = replace(chained(), cluster=replace(cluster, links=cluster.links[1:]))
    wide = replace(star, jobs=fast_and_slow(9).jobs, models=fast_and_slow(9).models)
    none = solve(replace(wide, jobs=(replace(wide.jobs[0], deadline_us=None),)), "auto", QUICK, survivable=True)
    assert none.status is Status.INFEASIBLE and carries(none.conflicts[0].message, "outlives", "every")
    with misuse("unknown-option survivable"):
        solve(fast_and_slow(9), "ilp", QUICK, survivable=True)


def test_survivable_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("tight.json", "loose.json")]
    for file, deadline in zip(files, (15, 16), strict=True):
        file.write_bytes(encode_instance(replace(chained(), jobs=(replace(chained().jobs[0], deadline_us=deadline),))))
    call = ["--survivable", "--work-limit", "0.5", "--threads", "1", "-q", "--json"]
    assert main(["solve", str(files[0]), *call]) == 5
    assert json.loads(capsys.readouterr().out)["status"] == "unknown"
    assert main(["solve", str(files[1]), *call, "-o", str(tmp_path / "plan.json")]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == 12
    assert main(["solve", str(files[1]), "--survivable", "--warm", str(tmp_path / "plan.json")]) == 2
    assert carries(capsys.readouterr().err, "--survivable", "--warm")


CASES = Path(__file__).parents[1] / "data" / "cases" / "robust"


@pytest.mark.parametrize("name", ["avoid-links", "avoid-links-used", "deadline-policy"])
def test_policies_that_avoid_links_stay_valid_without_these(name: str) -> None:
    instance = load_instance(CASES / f"robust-{name}.json")
    result = solve(instance, "auto", QUICK, survivable=True)
    require_survivable(instance, result)
    assert result.objective == solve(instance, "auto", QUICK).objective


@pytest.mark.parametrize("links", [("cs",), ("ab", "as", "bs", "cs")])
@pytest.mark.parametrize("servers", [(), ("a",), ("a", "c")])
def test_a_cluster_without_some_of_its_parts_is_valid(links: tuple[str, ...], servers: tuple[str, ...]) -> None:
    instance = fast_and_slow(100)
    policy = RoutePolicy(avoid=("a", "s"), avoid_links=("ab", "cs"), via=(("a", "b"), ("c",)), max_links=3)
    cluster = replace(instance.cluster, route_policies={"p": policy})
    left = replace(instance, cluster=cluster.without(links, servers)).cluster
    assert [server.name for server in left.servers] == [
        server.name for server in cluster.servers if server.name not in servers
    ]
    assert all(link.name not in links and not set(servers).intersection(link.ends) for link in left.links)
    assert left.route_policies is not None and left.route_policies["p"].via == policy.via
    whole, parts = Routes(cluster).under("p"), Routes(left).under("p")
    for first, second in combinations(range(len(left.servers)), 2):
        ends = [[server.name for server in cluster.servers].index(left.servers[at].name) for at in (first, second)]
        used = whole.between(*ends)
        old = None if used is None else [cluster.links[link] for link in used]
        if old is not None and all(each in left.links for each in old):
            new = parts.between(first, second)
            assert new is not None and [left.links[link] for link in new] == old


def test_survivable_and_phased_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "server/plain", "--solver", "phased", "--survivable"]) == 2
    assert carries(capsys.readouterr().err, "'phased'", "--survivable")
