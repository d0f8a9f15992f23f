"""Phased plans, correct and changed, beside a referee that expands them (specification: phased-plans)."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_plan, encode_plan, instance_sha256
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Efficiency,
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
    StaircaseDepth,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from tests.phased_referee import accepts
from tests.work import lines_executed

Json = dict[str, Any]
NET = Model((Segment("body", {"v": 3}, {"v": 6}, 10, 40), Segment("head", {"v": 1}, {"v": 2}, 5, 1)), state_factor=1)
ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
CLUSTER = Cluster(
    (Server("x", "v", 2, 71, 10**6), Server("y", "v", 2, 71, 10**6), Server("z", "v", 2, 80, 10**6, 1)),
    (),
    (Link("xy", ("x", "y"), 10**6, 1), Link("yz", ("y", "z"), 10**6, 1)),
)
PIPE = TaskGraph(
    (Slot("a", 50), Slot("b")),
    (
        TaskGraphBlock("F0", ("a",), {"v": 4}),
        TaskGraphBlock("F1", ("b",), {"v": 4}),
        TaskGraphBlock("B0", ("a",), {"v": 6}),
    ),
    (TaskGraphTransfer("act", 0, source="a", target="b"),),
    (Edge("F0", "act"), Edge("act", "F1"), Edge("F1", "B0")),
    holds=(MemoryInterval("F0", "B0", 10),),
)
INSTANCE = Instance(
    "phases",
    CLUSTER,
    {"net": NET, "one": ONE},
    (
        Job("pair", "net", 2, 7, release_us=3, depth=StaircaseDepth()),
        Job("free", "net", 2, 4, depth=FreeDepth(balance=0), deadline_us=156),
        Job("lone", "one", 1, 5),
        TaskGraphJob("pipe", PIPE, 6),
        Job("tail", "one", 1, 3),
    ),
)


def times(*pairs: tuple[int, int]) -> list[Json]:
    return [{"start_us": start, "end_us": end} for start, end in pairs]


def iteration(blocks: list[tuple[int, int, int]], transfers: list[tuple[int, int]]) -> Json:
    return {
        "blocks": [{"level": level, "start_us": start, "end_us": end} for level, start, end in blocks],
        "transfers": [{"bucket": b, "start_us": start, "end_us": end} for b, (start, end) in enumerate(transfers, 1)],
    }


STEP = iteration([(2, 0, 12), (1, 0, 6)], [(6, 13), (13, 19)])
NEXT = iteration([(1, 19, 25), (2, 19, 31)], [(25, 32), (32, 38)])


def plan_of(name: str, gpus: list[str], iterations: list[Json]) -> Json:
    return {"name": name, "gpus": gpus, "iterations": iterations}


def phase(start_us: int, period_us: int, repeats: int, *jobs: Json) -> Json:
    return {"start_us": start_us, "period_us": period_us, "repeats": repeats, "jobs": list(jobs)}


def document() -> Json:
    """Two groups; one job pauses in each, `lone` begins a period late, and `pipe` holds memory for two periods."""
    wide = ["x/0", "y/0"]
    pipe = [{"blocks": times((0, 4), (5, 9), (14, 20)), "transfers": times((4, 5))}]
    late, early = [iteration([(1, 25, 35)], [])], [iteration([(1, 6, 16)], [])]
    first = phase(3, 19, 3, plan_of("pair", wide, [STEP]), plan_of("lone", ["y/0"], late))
    second = phase(80, 38, 2, plan_of("free", wide, [STEP, NEXT]), plan_of("lone", ["y/0"], early))
    third = phase(156, 38, 2, plan_of("pair", wide, [STEP, NEXT]))
    slots = ["z/0", "z/1"]
    other = [
        phase(0, 10, 4, plan_of("pipe", slots, pipe)),
        phase(50, 10, 3, plan_of("tail", ["z/0"], [iteration([(1, 0, 10)], [])])),
        phase(85, 10, 2, plan_of("pipe", slots, pipe)),
    ]
    tree = {
        "format": "jigsaw-phased-plan/1",
        "instance": INSTANCE.name,
        "instance_sha256": instance_sha256(INSTANCE),
        "status": "feasible",
        "objective": 232,
        "bound": 230,
        "solver": {"name": "by hand"},
        "groups": [{"phases": [first, second, third]}, {"phases": other}],
    }
    return copy.deepcopy(tree)


def decoded(tree: Json) -> Plan:
    return decode_plan(json.dumps(tree))


def rules(plan: Plan, instance: Instance = INSTANCE) -> set[str]:
    return {violation.rule for violation in check(instance, plan)}


def test_a_correct_plan_is_accepted_and_survives_its_document() -> None:
    plan = decoded(document())
    assert check(INSTANCE, plan) == () and accepts(INSTANCE, plan)
    assert decode_plan(encode_plan(plan)) == plan
    tree = document()
    first, second = (tree["groups"][0]["phases"][k]["jobs"] for k in (0, 1))
    heavy = replace(INSTANCE, objective="weighted_completion")
    value = 232 + 156 + (80 + 38 + 16) + 115 + 80
    tree |= {"objective": value, "bound": 0, "instance_sha256": instance_sha256(heavy)}
    assert rules(decoded(tree), heavy) == set()
    assert first[1]["name"] == second[1]["name"] == "lone"


def set_in(*steps: Any) -> Json:
    """The document with what stands at the last step but one replaced by the last."""
    tree = document()
    *path, key, value = steps
    place: Any = tree
    for step in path:
        place = place[step]
    place[key] = value
    return tree


G = "groups"
P0 = (G, 0, "phases", 0)


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        (set_in("instance", "other"), "document"),
        (set_in(*P0, "jobs", 0, "iterations", []), "document"),
        (set_in(*P0, "jobs", 0, "name", "stranger"), "document"),
        (set_in(*P0, "jobs", document()[G][0]["phases"][0]["jobs"][::-1]), "document"),
        (set_in(*P0, "jobs", 1, "gpus", ["x/1"]), "placement"),
        (set_in(*P0, "jobs", 0, "iterations", 0, "blocks", 0, "level", 1), "levels"),
        (set_in(G, 0, "phases", 1, "jobs", 0, "iterations", [STEP, STEP]), "balance"),
        (set_in(*P0, "start_us", 2), "release"),
        (set_in(G, 0, "phases", 1, "start_us", 81), "deadline"),
        (set_in(*P0, "period_us", 18), "period"),
        (set_in(*P0, "start_us", 8), "phases"),
        (set_in(G, 0, "phases", 2, "repeats", 3), "phases"),
        (set_in(*P0, "repeats", 4), "phases"),
        (set_in(G, 1, "phases", 1, "jobs", 0, "gpus", ["x/0"]), "groups"),
        (set_in(G, document()[G][:1]), "groups"),
        (set_in(G, [{"phases": [p]} for group in document()[G] for p in group["phases"]]), "groups"),
        (set_in(*P0, "jobs", 1, "iterations", 0, "blocks", 0, "start_us", 24), "exclusive"),
        (set_in(G, 1, "phases", 0, "period_us", 9), "exclusive"),
        (set_in("objective", 231), "objective"),
        (set_in("bound", 233), "bound"),
        (set_in("status", "optimal"), "bound"),
    ],
)
def test_one_change_breaks_its_rule(tree: Json, rule: str) -> None:
    plan = decoded(tree)
    assert rule in rules(plan)
    assert not accepts(INSTANCE, plan)


def test_memory_counts_jobs_that_pause_and_no_others() -> None:
    for server, limit in ((0, 70), (1, 70), (2, 79)):
        servers = list(CLUSTER.servers)
        servers[server] = replace(servers[server], gpu_memory=limit)
        instance = replace(INSTANCE, cluster=replace(CLUSTER, servers=tuple(servers)))
        plan = replace(decoded(document()), instance_sha256=instance_sha256(instance))
        assert rules(plan, instance) == {"memory"} and not accepts(instance, plan)
    # Where the job of the first phase does not come back, its state counts no longer.
    tree = document()
    tree[G][1]["phases"] = [tree[G][1]["phases"][k] for k in (0, 1)]
    jobs = tuple(replace(job, iterations=4) if job.name == "pipe" else job for job in INSTANCE.jobs)
    servers = (*CLUSTER.servers[:2], replace(CLUSTER.servers[2], gpu_memory=70))
    instance = replace(INSTANCE, jobs=jobs, cluster=replace(CLUSTER, servers=servers))
    plan = decoded(tree | {"instance_sha256": instance_sha256(instance)})
    assert rules(plan, instance) == set() and accepts(instance, plan)


def test_balance_is_counted_over_the_whole_plan() -> None:
    """Two workers that change places between phases: each iteration counts as often as it is repeated."""
    instance = replace(INSTANCE, jobs=(Job("free", "net", 2, 4, depth=FreeDepth(balance=0)),))
    other = iteration([(1, 0, 6), (2, 0, 12)], [(6, 13), (13, 19)])
    for repeats, broken in ((2, set()), (3, {"balance"})):
        phases = [
            phase(0, 19, repeats, plan_of("free", ["x/0", "y/0"], [STEP])),
            phase(19 * repeats, 19, 4 - repeats, plan_of("free", ["x/0", "y/0"], [other])),
        ]
        tree = {"instance_sha256": instance_sha256(instance), "objective": 76, "bound": 0, G: [{"phases": phases}]}
        plan = decoded(document() | tree)
        assert rules(plan, instance) == broken and accepts(instance, plan) == (not broken)


def test_progress_is_kept_in_every_period() -> None:
    """A period at full depth does not make up for one at lower levels, in which bucket 2 makes 0.6."""
    net = replace(INSTANCE.models["net"], efficiency=Efficiency((0, 4000), (0, 1)))
    whole = iteration([(2, 0, 12), (2, 0, 12)], [(6, 13), (13, 25)])
    for share, broken in (("6/10", set()), ("7/10", {"progress"})):
        job = Job("free", "net", 2, 4, depth=FreeDepth(min_progress=share))
        instance = replace(INSTANCE, models={**INSTANCE.models, "net": net}, jobs=(job,))
        phases = [
            phase(0, 19, 1, plan_of("free", ["x/0", "y/0"], [STEP])),
            phase(19, 25, 3, plan_of("free", ["x/0", "y/0"], [whole])),
        ]
        tree = {"instance_sha256": instance_sha256(instance), "objective": 94, "bound": 0, G: [{"phases": phases}]}
        plan = decoded(document() | tree)
        assert rules(plan, instance) == broken and accepts(instance, plan) == (not broken)


def test_memory_counts_the_deepest_level_of_the_whole_plan() -> None:
    """In the first phase a job trains to level 1 beside another one, but its room is that of level 2 all the time."""
    segment = Segment("s", {"v": 1}, {"v": 1}, 1, 10)
    model = Model((segment, replace(segment, name="t"), replace(segment, name="u")), state_factor=1)
    jobs = (Job("deep", "m", 2, 2, depth=FreeDepth(mean_depth=0)), Job("slot", "tiny", 1, 1))
    tiny = Model((replace(segment, activation_bytes=0),), state_factor=5)
    step = iteration([(1, 0, 4), (3, 0, 6)], [(4, 8), (8, 11), (11, 14)])
    swapped = iteration([(2, 0, 5), (3, 0, 6)], [(4, 8), (8, 12), (12, 15)])
    for size, broken in ((38, set()), (37, {"memory"})):
        servers = (Server("x", "v", 1, size, 10**6), Server("y", "v", 1, 100, 10**6))
        cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6),))
        instance = Instance("deep", cluster, {"m": model, "tiny": tiny}, jobs)
        lone = plan_of("slot", ["x/0"], [iteration([(1, 4, 6)], [])])
        first = phase(0, 14, 1, plan_of("deep", ["x/0", "y/0"], [step]), lone)
        phases = [first, phase(14, 15, 1, plan_of("deep", ["x/0", "y/0"], [swapped]))]
        top = {"instance": "deep", "instance_sha256": instance_sha256(instance), "objective": 29, "bound": 0}
        plan = decoded(document() | top | {G: [{"phases": phases}]})
        assert rules(plan, instance) == broken and accepts(instance, plan) == (not broken)


def test_a_link_of_two_groups_is_found() -> None:
    """The second group's pair has GPUs of its own on the servers of the first."""
    pair = Job("pair", "net", 2, 2, depth=StaircaseDepth())
    instance = replace(INSTANCE, jobs=(pair, replace(pair, name="other")))
    groups = [
        {"phases": [phase(0, 19, 2, plan_of(name, [f"x/{k}", f"y/{k}"], [STEP]))]}
        for k, name in enumerate(("pair", "other"))
    ]
    tree = document() | {"instance_sha256": instance_sha256(instance), "objective": 38, "bound": 0, G: groups}
    found = check(instance, decoded(tree))
    assert [(v.rule, v.message) for v in found] == [("groups", "link xy is in group 0, too")]
    assert not accepts(instance, decoded(tree))


def test_the_work_does_not_depend_on_repetitions() -> None:
    step = [iteration([(1, 10 * k, 10 * k + 10)], []) for k in range(3)]

    def checked(repeats: int) -> None:
        instance = replace(INSTANCE, jobs=(Job("lone", "one", 1, 3 * repeats),))
        group = {"phases": [phase(0, 30, repeats, plan_of("lone", ["x/0"], step))]}
        tree = {"instance_sha256": instance_sha256(instance), "objective": 30 * repeats, "bound": 0, G: [group]}
        assert check(instance, decoded(document() | tree)) == ()

    assert lines_executed(lambda: checked(10**9)) == lines_executed(lambda: checked(1000))


def test_a_damaged_plan_is_reported_and_nothing_is_raised() -> None:
    plan = decoded(document())
    first = plan.groups[0].phases[0]
    for damaged in (
        replace(plan, groups=()),
        replace(plan, groups=(replace(plan.groups[0], phases=()), plan.groups[1])),
        replace(plan, groups=(replace(plan.groups[0], phases=(replace(first, period_us=0, repeats=0, jobs=()),)),)),
        replace(plan, groups=(replace(plan.groups[0], phases=(replace(first, jobs=first.jobs * 2),)),)),
    ):
        assert rules(damaged) & {"document", "groups"}
    early = replace(plan.groups[0], phases=(replace(first, start_us=-10), *plan.groups[0].phases[1:]))
    found = check(INSTANCE, replace(plan, groups=(early, plan.groups[1])))
    assert ("phases", "$.groups[0].phases[0].start_us") in {(each.rule, each.path) for each in found}
    cyclic = Instance("c", CLUSTER, INSTANCE.models, (Job("lone", "one", 1, 1),), "cyclic", "period")
    assert "document" in rules(plan, cyclic)
