"""Where the time of a job goes: hand-made plans with an answer for each kind of wait, and sums on random plans."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.cli.plans.explain_report import print_job
from jigsaw_opt.documents import encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Execution,
    FreeDepth,
    Instance,
    Job,
    Link,
    MemoryInterval,
    Model,
    Plan,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
    TaskGraphTransfer,
)
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.explanation import JobExplanation, explain
from jigsaw_opt.solvers.explanation.breakdown import explain_jobs
from jigsaw_opt.solvers.explanation.chain import Chains
from jigsaw_opt.solvers.explanation.changes import changes
from jigsaw_opt.solvers.explanation.in_words import folded
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, KeptTiming
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.explained import explained_picture
from jigsaw_opt.views.html import timeline_data
from jigsaw_opt.views.lanes import picture
from tests.random_instances import GOALS, random_instance, with_power_caps
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance, with_objective
from tests.refusals import carries, misuse
from tests.solvers.test_failures import chained

ONE_GPU = Cluster((Server("a", "v", 1, 10, 10**6),))
TWO_GPUS = Cluster(
    (Server("a", "v", 1, 10, 10**6), Server("b", "v", 1, 10, 10**6)), (), (Link("wire", ("a", "b"), 10**6),)
)


def single(name: str, length: int, iterations: int = 1, release_us: int = 0, held: int = 0) -> TaskGraphJob:
    """One block."""
    holds = (MemoryInterval("A", "A", held),) if held else ()
    return TaskGraphJob(
        name,
        TaskGraph((Slot("x"),), (TaskGraphBlock("A", ("x",), {"v": length}),), holds=holds),
        iterations,
        release_us,
    )


def planned(
    cluster: Cluster, jobs: list[tuple[TaskGraphJob, tuple[str, ...], list[list[int]]]], period: int = 0
) -> tuple[Instance, Plan]:
    """A plan by GPUs and starts by iteration; blocks take their time, and a transfer a microsecond per byte."""
    horizon = ("cyclic", "period") if period else ("finite", "makespan")
    instance = Instance("by hand", cluster, {}, tuple(job for job, *_ in jobs), *horizon)  # type: ignore[arg-type]
    plans, last = [], 0
    for job, gpus, rows in jobs:
        lengths = [block.duration_us["v"] for block in job.shape.blocks] + [
            transfer.bytes for transfer in job.shape.transfers
        ]
        count, iterations = len(job.shape.blocks), []
        for row in rows:
            done = tuple(Execution(start, start + length) for start, length in zip(row, lengths, strict=True))
            iterations.append(TaskGraphIteration(done[:count], done[count:]))
            last = max(last, *(each.end_us for each in done))
        plans.append(TaskGraphJobPlan(job.name, gpus, tuple(iterations)))
    value = period or last
    plan = Plan.of_jobs("by hand", instance_sha256(instance), "feasible", value, 0, period or None, tuple(plans))
    assert check(instance, plan) == ()
    return instance, plan


def told(instance: Instance, plan: Plan, name: str) -> dict[str, int]:
    """Time of the chain by kind, without zeros."""
    found = explain_jobs(instance, plan, name)[0]
    require_sums(found)
    return {kind: us for kind, us in found.time_us.items() if us}


def require_sums(job: JobExplanation) -> None:
    assert sum(job.time_us.values()) == job.explained_us
    at = job.end_us - job.explained_us
    for step in job.chain:
        assert step.start_us == at < step.end_us
        at = step.end_us
    assert at == job.end_us
    for worker in job.workers:
        assert sum(worker.time_us.values()) == job.explained_us and min(worker.time_us.values()) >= 0


def late() -> tuple[Instance, Plan]:
    """A job that waits for its release, then for a GPU, and then for nothing."""
    return planned(ONE_GPU, [(single("a", 10, release_us=2), ("a/0",), [[8]]), (single("b", 5), ("a/0",), [[0]])])


def test_release_gpu_and_slack() -> None:
    assert told(*late(), "a") == {"release": 2, "gpu": 3, "slack": 3, "compute": 10}
    waits = explain_jobs(*late(), "a")[0].waits
    assert [(wait.kind, wait.on, wait.by, wait.us) for wait in waits] == [("gpu", "a/0", "b", 3)]


def test_a_hole_that_is_too_short_is_part_of_the_wait() -> None:
    jobs = [(single("a", 10), ("a/0",), [[13]]), (single("b", 5, 2), ("a/0",), [[0], [8]])]
    assert told(*planned(ONE_GPU, jobs), "a") == {"gpu": 13, "compute": 10}
    jobs = [(single("a", 3), ("a/0",), [[13]]), (single("b", 5, 2), ("a/0",), [[0], [8]])]
    assert told(*planned(ONE_GPU, jobs), "a") == {"gpu": 5, "slack": 8, "compute": 3}
    # Its own blocks are no wait.
    assert told(*planned(ONE_GPU, jobs), "b") == {"compute": 10, "slack": 3}


def moved(name: str, first: int, size: int) -> TaskGraphJob:
    """A block, a transfer and a block."""
    blocks = (TaskGraphBlock("A", ("x",), {"v": first}), TaskGraphBlock("B", ("y",), {"v": 5}))
    move = TaskGraphTransfer("m", size, source="x", target="y")
    return TaskGraphJob(name, TaskGraph((Slot("x"), Slot("y")), blocks, (move,), (Edge("A", "m"), Edge("m", "B"))), 1)


def test_link_and_partner() -> None:
    a, b = moved("a", 3, 4), moved("b", 1, 6)
    instance, plan = planned(TWO_GPUS, [(a, ("a/0", "b/0"), [[1, 13, 7]]), (b, ("a/0", "b/0"), [[0, 8, 1]])])
    # Its block waits for that of b, its transfer for that of b; B fits at once, and still waits from 11 to 13.
    assert told(instance, plan, "a") == {"gpu": 1 + 2, "compute": 3 + 5, "link": 3, "exchange": 4}
    assert require_true(instance, plan) == {"gpu": 2, "link": 1, "slack": 1}
    first, second = (worker.time_us for worker in explain_jobs(instance, plan, "a")[0].workers)
    assert {kind: us for kind, us in first.items() if us} == {
        "compute": 3,
        "partner": 5,
        "gpu": 3,
        "link": 3,
        "exchange": 4,
    }
    assert {kind: us for kind, us in second.items() if us} == {
        "compute": 5,
        "partner": 3,
        "gpu": 3,
        "link": 3,
        "exchange": 4,
    }
    gains = {change.change: change.end_us for change in changes(instance, plan, "a")}
    assert gains == {
        "as early as the order permits": 17,
        "GPUs of its own": 16,
        "links of its own": 17,
        "twice the bandwidth of its links": 14,
        "alone in the cluster": 12,
    }


HOLDING = TaskGraph(
    (Slot("x"), Slot("y")),
    tuple(TaskGraphBlock(name, (slot,), {"v": us}) for name, slot, us in (("F", "x", 2), ("G", "y", 8), ("B", "x", 2))),
    (),
    (Edge("F", "G"), Edge("G", "B")),
    holds=(MemoryInterval("F", "B", 6),),
)


def test_memory() -> None:
    jobs = [
        (TaskGraphJob("p", HOLDING, 1), ("a/0", "b/0"), [[0, 2, 10]]),
        (single("q", 1, held=6), ("a/0",), [[12]]),
    ]
    assert told(*planned(TWO_GPUS, jobs), "q") == {"gpu": 4, "memory": 8, "compute": 1}
    assert require_true(*planned(TWO_GPUS, jobs)) == {"gpu": 2, "memory": 1}
    jobs = [
        (TaskGraphJob("p", HOLDING, 1), ("a/0", "b/0"), [[0, 2, 10]]),
        (single("q", 1, held=4), ("a/0",), [[12]]),
    ]
    assert told(*planned(TWO_GPUS, jobs), "q") == {"gpu": 2, "slack": 10, "compute": 1}


def test_a_period_is_a_circuit() -> None:
    job = moved("a", 3, 4)
    job = replace(job, shape=replace(job.shape, barrier="job"))
    instance, plan = planned(TWO_GPUS, [(job, ("a/0", "b/0"), [[9, 16, 12]])], period=12)
    assert told(instance, plan, "a") == {"compute": 8, "exchange": 4}
    # With a longer period something waits for nothing.
    instance, plan = planned(TWO_GPUS, [(job, ("a/0", "b/0"), [[9, 16, 12]])], period=20)
    assert told(instance, plan, "a") == {"compute": 8, "exchange": 4, "slack": 8}
    assert changes(instance, plan, "a")[0].gain_us == 8


def test_memory_over_the_end_of_a_period() -> None:
    jobs = [
        (TaskGraphJob("p", HOLDING, 1), ("a/0", "b/0"), [[12, 14, 22]]),
        (single("q", 1, held=6), ("a/0",), [[8]]),
    ]
    # The memory is held from 12 to 24, which is 0 to 4 and 12 to 20; free from 4 on, as it was before.
    assert told(*planned(TWO_GPUS, jobs, period=20), "q") == {"compute": 1, "slack": 19}
    # What it holds for long has no room while the other one holds its own.
    shape = replace(HOLDING, holds=(MemoryInterval("F", "B", 5),))
    jobs = [(TaskGraphJob("r", shape, 1), ("a/0", "b/0"), [[5, 7, 15]]), (single("q", 1, held=6), ("a/0",), [[18]])]
    assert told(*planned(TWO_GPUS, jobs, period=20), "r") == {
        "compute": 12,
        "memory": 1,
        "gpu": 1,
        "slack": 6,
    }


def moved_to(instance: Instance, plan: Plan, activity: int, start: int) -> Plan:
    """The plan with another start of one operation."""
    order = KeptOrder.of(instance, plan)
    starts = [start if a == activity else old for a, old in enumerate(order.starts)]
    _, timetable = order.timetable(KeptTiming(order.flat, starts, plan.period_us), (), order.operations.routes)
    jobs = {job.name: job for job in timetable.plans}
    return with_objective(instance, plan.with_jobs(tuple(jobs[job.name] for job in instance.jobs)))


def require_true(instance: Instance, plan: Plan) -> Counter[str]:
    """By the checker: an operation could be where it has slack, and nowhere where it waits."""
    chains, seen = Chains(KeptOrder.of(instance, plan)), Counter[str]()
    for activity in range(len(KeptOrder.of(instance, plan).starts)):
        for step in chains.waits(activity):
            if step.start_us >= 0:
                wrong = check(instance, moved_to(instance, plan, activity, step.start_us))
                assert (wrong == ()) == (step.kind == "slack"), step
                seen[step.kind] += 1
    return seen


def test_a_block_waits_for_power() -> None:
    """b waits for c on its GPU, and then for a, which draws most of what the room may."""
    cap = PowerCap("room", ("a", "b"), 3)
    cluster = replace(TWO_GPUS, power_caps=(cap,))
    drawing = [(single(name, length), watts) for name, length, watts in (("a", 5, 2), ("b", 3, 2), ("c", 4, 1))]
    jobs = [
        replace(job, shape=replace(job.shape, blocks=(replace(job.shape.blocks[0], power_w={"v": watts}),)))
        for job, watts in drawing
    ]
    places = [(jobs[0], ("a/0",), [[0]]), (jobs[1], ("b/0",), [[7]]), (jobs[2], ("b/0",), [[0]])]
    instance, plan = planned(cluster, places)
    assert told(instance, plan, "b") == {"gpu": 4, "power": 1, "slack": 2, "compute": 3}
    [wait] = [wait for wait in explain_jobs(instance, plan, "b")[0].waits if wait.kind == "power"]
    assert (wait.on, wait.by, wait.us) == ("room", "", 1)
    assert told(*planned(cluster, places, period=12), "b") == {"gpu": 6, "power": 1, "slack": 2, "compute": 3}


@pytest.mark.parametrize("goal", GOALS)
def test_waits_for_power_are_what_the_checker_says(goal: tuple[str, str]) -> None:
    seen = Counter[str]()
    for seed in range(8):
        capped = with_power_caps(random_mixed_instance(seed, *goal), Random(seed))  # type: ignore[arg-type]
        plan = solve(capped, "greedy", Options(threads=1)).plan
        seen += require_true(capped, plan) if plan is not None else Counter()
    assert seen["power"] > 0


@pytest.mark.parametrize("goal", GOALS)
def test_waits_are_what_the_checker_says(goal: tuple[str, str]) -> None:
    random, seen = Random(f"waits/{goal}"), Counter[str]()
    for seed in range(4):
        instance = random_mixed_instance(seed, *goal)  # type: ignore[arg-type]
        plan = solve(instance, "greedy", Options(threads=1)).plan
        if plan is None:
            continue
        for _ in range(6):  # some operations are delayed, as far as the others let them
            starts = KeptOrder.of(instance, plan).starts
            activity = random.randrange(len(starts))
            late = moved_to(instance, plan, activity, starts[activity] + random.randint(1, 6))
            plan = late if not check(instance, late) else plan
        seen += require_true(instance, plan)
    assert seen["slack"] > 2 and seen["gpu"] > 0


@pytest.mark.parametrize("goal", GOALS)
def test_sums_on_random_plans(goal: tuple[str, str]) -> None:
    seen = 0
    for seed in range(2):
        for family in (random_instance, random_task_graph_instance, random_mixed_instance):
            instance = family(seed, *goal)  # type: ignore[operator]
            plan = solve(instance, "greedy", Options(threads=1)).plan
            if plan is None:
                continue
            for job in explain_jobs(instance, plan):
                require_sums(job)
                seen += 1
            found = {change.change: change.gain_us for change in changes(instance, plan, instance.jobs[0].name)}
            alone = found.get("alone in the cluster", 0)
            early = found["as early as the order permits"]
            assert 0 <= early <= found["GPUs of its own"]
            assert "alone in the cluster" not in found or found["GPUs of its own"] <= alone
            assert early <= found.get("links of its own", early)
    assert seen > 3


def retimed(instance: Instance, plan: Plan, name: str) -> int:
    """End of a job, or the period, of the plan in its order on another cluster; it passes the check."""
    order = KeptOrder.of(instance, plan)
    timing = order.timed_as(order.flat)
    assert timing is not None
    _, timetable = order.timetable(timing, (), order.operations.routes)
    jobs = {job.name: job for job in timetable.plans}
    in_order, digest = tuple(jobs[job.name] for job in instance.jobs), instance_sha256(instance)
    early = replace(
        plan.with_jobs(in_order).with_period(timing.period), instance_sha256=digest, bound=0, status="feasible"
    )
    assert check(instance, with_objective(instance, early)) == ()
    ends = {job.name: end for job, end in zip(order.jobs, order.ends(timing), strict=True)}
    return timing.period or ends[name]


@pytest.mark.parametrize("goal", GOALS)
def test_changes_are_plans_of_changed_instances(goal: tuple[str, str]) -> None:
    seen = 0
    for seed in range(5):
        instance = random_mixed_instance(seed, *goal)  # type: ignore[arg-type]
        plan = solve(instance, "greedy", Options(threads=1)).plan
        if plan is None:
            continue
        job, cluster = plan.jobs[0], instance.cluster
        found = {change.change: change.end_us for change in changes(instance, plan, job.name)}
        more = replace(cluster, servers=tuple(replace(server, gpus=2 * server.gpus) for server in cluster.servers))
        size = {server.name: server.gpus for server in cluster.servers}
        split = [gpu.split("/") for gpu in job.gpus]
        apart = replace(job, gpus=tuple(f"{server}/{int(k) + size[server]}" for server, k in split))
        own = plan.with_jobs((apart, *plan.jobs[1:]))
        assert retimed(replace(instance, cluster=more), own, job.name) == found["GPUs of its own"]
        alone = replace(instance, jobs=instance.jobs[:1])
        assert retimed(alone, plan.with_jobs((job,)), job.name) == found.get(
            "alone in the cluster", found["GPUs of its own"]
        )
        links = used_links(instance, plan)
        if links:
            wide = tuple(
                replace(link, bandwidth=2 * link.bandwidth) if link.name in links else link for link in cluster.links
            )
            wider = replace(instance, cluster=replace(cluster, links=wide))
            assert retimed(wider, plan, job.name) == found["twice the bandwidth of its links"]
        seen += 1
    assert seen > 1


def used_links(instance: Instance, plan: Plan) -> set[str]:
    """Links on which transfers of the first job of a plan are."""
    order, links = KeptOrder.of(instance, plan), instance.cluster.links
    job = next(at for at, each in enumerate(order.jobs) if each.name == plan.jobs[0].name)
    used = {each for at, own in enumerate(order.flat.resources) if order.flat.job[at] == job for each in own}
    return {links[each - instance.cluster.gpu_count].name for each in used if each >= instance.cluster.gpu_count}


def test_levels_that_the_rule_allows(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model((Segment("in", {"v": 1}, {"v": 4}, 1, 0), Segment("out", {"v": 1}, {"v": 2}, 1, 0)), state_factor=1)
    job = Job("d", "m", 2, 2, depth=FreeDepth())
    cluster = Cluster((Server("a", "v", 2, 10, 10**6),))
    instance = Instance("levels", cluster, {"m": model}, (job,), "finite", "makespan")
    plan = solve(instance, "greedy", Options(threads=1)).plan
    assert plan is not None
    found = {change.change: change for change in changes(instance, plan, "d")}
    full = replace(instance, jobs=(replace(job, depth=FreeDepth(mean_depth=1)),))
    best = solve(full, "greedy", Options(threads=1)).plan
    assert best is not None and found["full depth"].end_us == best.objective
    assert found["full depth"].gain_us <= 0
    print_job(explain(full, best, "d"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["a/0", "...", "a/1,", "each", "of", "2", "16", "2"] in lines
    assert "full depth" not in {change.change for change in changes(full, replace(best, instance_sha256=""), "d")}


def test_repeats_are_told_once() -> None:
    jobs = [
        (single("a", 2, 9), ("a/0",), [[4 * k] for k in range(9)]),
        (single("b", 2, 8), ("a/0",), [[4 * k + 2] for k in range(8)]),
    ]
    chain = explain_jobs(*planned(ONE_GPU, jobs), "a")[0].chain
    assert len(chain) == 17
    lines = folded(chain)
    assert [(len(line.steps), line.times, line.time_us) for line in lines] == [(2, 8, (16, 16)), (1, 1, (2,))]
    assert [step.kind for step in lines[0].steps] == ["compute", "gpu"]
    assert [step.iteration for step in (*lines[0].steps, *lines[0].last)] == [0, 1, 7, 8]


def shown(instance: Instance, plan: Plan, folder: Path, *job: str) -> list[str]:
    (folder / "i.json").write_bytes(encode_instance(instance))
    (folder / "p.json").write_bytes(encode_plan(plan))
    return ["explain", str(folder / "i.json"), str(folder / "p.json"), *job]


def test_a_bound_that_the_plan_file_claims_is_told_from_what_is_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, plan = late()
    assert main(shown(instance, plan, tmp_path)) == 0
    assert "claims" not in capsys.readouterr().out
    assert main(shown(instance, replace(plan, bound=plan.objective), tmp_path)) == 0
    told = capsys.readouterr().out.splitlines()[-2:]
    assert plan.objective > 15
    assert carries(told[0], "No plan ends before 15 µs") and carries(told[1], "claims", f"{plan.objective}", "checked")
    assert "optimal" not in told[1]


def test_changes_that_gain_nothing_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = planned(ONE_GPU, [(single("a", 2, 2), ("a/0",), [[0], [2]])])
    assert main(shown(*alone, tmp_path, "a")) == 0
    out = capsys.readouterr().out
    assert carries(out, "changes", "anything")
    assert "gain us" not in out


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = late()
    files = [str(tmp_path / "i.json"), str(tmp_path / "p.json")]
    Path(files[0]).write_bytes(encode_instance(instance))
    Path(files[1]).write_bytes(encode_plan(plan))
    assert main(["explain", *files]) == 0
    assert carries(capsys.readouterr().out, "a/0", "3 us")
    assert main(["explain", *files, "a"]) == 0
    out = capsys.readouterr().out
    assert carries(out, "released") and carries(out, "before", "15 µs")
    assert main(["explain", *files, "a", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["objective", "value", "bound", "progress", "jobs", "changes"]
    assert data["jobs"][0]["time_us"]["gpu"] == 3 and data["bound"]["proof"]["sentence"]
    assert data["bound"]["certified"] is (data["bound"]["argument"] is not None)
    assert [each["gain_us"] for each in data["changes"]] == [3, 6, 6]
    assert main(["explain", *files, "c"]) == 2
    assert carries(capsys.readouterr().err, "error: ", "'c'", "there are a, b")
    with misuse("unknown-name job"):
        explain_jobs(instance, plan, "c")


def test_chains_of_a_cyclic_plan_of_a_solver() -> None:
    instance = chained(cyclic=True)
    plan = solve(instance, "greedy", Options(threads=1)).plan
    assert plan is not None
    require_sums(explain_jobs(instance, plan)[0])


def test_a_page_with_long_chains_explains_the_jobs_that_end_last(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, plan = late()
    all_of_them = explained_picture(picture(instance, plan)).stories
    assert {number: each.job for number, each in all_of_them.items()} == dict(
        enumerate(job.name for job in instance.jobs)
    )
    monkeypatch.setattr("jigsaw_opt.views.explained._MOST_STEPS", 0)
    (number, story), *others = explained_picture(picture(instance, plan)).stories.items()
    assert not others and story == all_of_them[number]
    assert story.end_us == max(each.end_us for each in all_of_them.values())


def test_the_page_marks_the_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = late()
    data = timeline_data(explained_picture(picture(instance, plan), explain_jobs(instance, plan, "a")))
    assert data["chosen"] == 0
    story = data["jobs"][0]["story"]  # type: ignore[index]
    name, told = story["chain"][0]
    assert name == "0/block A"
    assert told.split("\n")[1] == "before it for 3 µs: waits for a GPU: a/0, held by b" and told.count("\n") == 2
    assert story["end"] == 18 and ("waits for a GPU", 3, "gpu") in story["spent"]
    assert ("waits for a GPU: a/0, held by b", 3) in story["waits"]
    files = [str(tmp_path / "i.json"), str(tmp_path / "p.json")]
    Path(files[0]).write_bytes(encode_instance(instance))
    Path(files[1]).write_bytes(encode_plan(plan))
    assert main(["explain", *files, "a", "-o", str(tmp_path / "page.html")]) == 0
    assert carries((tmp_path / "page.html").read_text(), "before", "3 µs")
    assert main(["explain", *files, "-o", str(tmp_path / "other.html")]) == 2
    assert not (tmp_path / "other.html").exists()


def test_transfers_inside_a_server_are_no_links_of_a_job_that_takes_turns() -> None:
    slots, blocks = (Slot("a"), Slot("b")), tuple(TaskGraphBlock(k, (k,), {"v": 5}) for k in "ab")
    graph = TaskGraph(slots, blocks, (TaskGraphTransfer("t", 3, "a", "b"),))
    cluster = Cluster((Server("s", "v", 2, 10, 10**6),), licences={"x": 1})
    jobs = tuple(TaskGraphJob(name, graph, 1, licences=("x",)) for name in "pq")
    instance = Instance("fabric", cluster, {}, jobs)
    plan = solve(instance, "greedy", threads=1).plan
    assert plan is not None
    told = [change.change for change in changes(instance, plan, "p")]
    assert "alone in the cluster" in told and not any("link" in change for change in told)
