"""Instances and plans check themselves and their parts when they are made."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from jigsaw_opt import (
    Cluster,
    FreeDepth,
    Instance,
    InvalidInputError,
    Job,
    Link,
    Model,
    Options,
    Plan,
    Segment,
    Server,
    UsageError,
    instance_sha256,
    instances,
    solve,
)
from jigsaw_opt.documents import decode_instance, encode_instance, load_instance
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.plan import Block, Iteration, JobPlan, Phase, PhaseGroup
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.keyed import altered
from tests.random_instances import with_route_policies
from tests.random_task_graphs import random_mixed_instance
from tests.refusals import misuse, refused

SERVER = Server("s0", "v100", 2, 10**9, 10**9)
MODEL = Model((Segment("body", {"v100": 10}, {"v100": 20}, 100, 10), Segment("head", {"v100": 1}, {"v100": 2}, 10, 1)))


def refusal(make: Callable[[], object]) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        make()
    return caught.value


def refusals(make: Callable[[], object]) -> list[str]:
    return refused(refusal(make))


def problems(make: Callable[[], object]) -> list[str]:
    return [str(problem) for problem in refusal(make).problems]


def test_all_that_is_wrong_with_a_part_is_told_at_once() -> None:
    wrong: Any = {"gpus": 0, "gpu_memory": -1, "fabric_bandwidth": 2.5, "gpu_type": None}
    assert refusals(lambda: Server("s/0", **wrong)) == [
        'malformed Server("s/0").name',
        'wrong-type Server("s/0").gpu_type',
        'out-of-range Server("s/0").gpus',
        'out-of-range Server("s/0").gpu_memory',
        'wrong-type Server("s/0").fabric_bandwidth',
    ]
    odd: Any = {3: 1, "v100": True, "a\ud800": 2}
    assert [line.partition(": ")[0] for line in problems(lambda: Segment("a", odd, {}, 0, 0))] == [
        'Segment("a").forward_us["3"]',
        'Segment("a").forward_us["a\\ud800"]',
        'Segment("a").forward_us.v100',
    ]
    assert refusals(lambda: Model(MODEL.segments, levels=(2, 1), state_factor=0)) == [
        "out-of-range Model.state_factor",
        "wrong-order Model.levels[1]",
        "mismatch Model.levels",
    ]
    assert refusals(lambda: Job("a", "net", 1, 1, depth=FreeDepth(min_contributors=0))) == [
        'out-of-range Job("a").depth.min_contributors'
    ]


def test_a_cluster_knows_what_its_parts_name() -> None:
    caps, policies = (PowerCap("room", ("s0", "s9"), 1),), {"p": RoutePolicy(avoid=("hub",))}
    links = (Link("l", ("s0", "s0"), 1), Link("l", ("s0", "nowhere"), 1))
    told = problems(lambda: Cluster((SERVER, SERVER), links=links, route_policies=policies, power_caps=caps))
    assert [line.partition(" (")[0] for line in told] == [
        'Cluster.servers[1].name: duplicate name "s0"',
        'Cluster.links[1].name: duplicate name "l"',
        'Cluster.route_policies.p.avoid[0]: no server or switch is called "hub"',
        'Cluster.power_caps[0].servers[1]: no server is called "s9"',
        'Cluster.links[0].ends: both ends are "s0"',
        'Cluster.links[1].ends[1]: no server or switch is called "nowhere"',
    ]


def test_an_instance_knows_what_its_jobs_name() -> None:
    jobs = (Job("a", "nett", 1, 1, release_us=5), Job("a", "net", 1, 1, deadline_us=9, route_policy="p"))
    told = problems(lambda: Instance("hand", Cluster((SERVER,)), {"net": MODEL}, jobs, "cyclic"))
    assert [line.partition(" (")[0] for line in told] == [
        '$.jobs[1].name: duplicate name "a"',
        '$.jobs[0].model: no model is called "nett"',
        '$.jobs[1].route_policy: no route policy is called "p"',
        '$.jobs[1].deadline_us: is for the horizon "finite"',
        '$.objective: "makespan" is for the horizon "finite"',
        '$.jobs[0].release_us: must be 0 with the horizon "cyclic"; is 5',
    ]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda each: Cluster(({"name": "s0"},)), "wrong-type Cluster.servers[0]"),
        (lambda each: replace(each, cluster=None), "wrong-type $.cluster"),
        (lambda each: replace(each, cluster={}), "wrong-type $.cluster"),
        (lambda each: replace(each, models={"net": SERVER}), "wrong-type $.models.net"),
        (lambda each: replace(each, jobs=("a",)), "wrong-type $.jobs[0]"),
        (lambda each: replace(each, jobs={1}), "wrong-type $.jobs"),
        (lambda each: Job("a", "net", 1, 1, depth={"rule": "full"}), 'wrong-type Job("a").depth'),
    ],
)
def test_parts_are_objects_of_their_class(make: Callable[[Instance], object], expected: str, pair: Instance) -> None:
    assert expected in refusals(lambda: make(pair))


def test_an_instance_made_by_hand_is_the_one_that_is_read(tmp_path: Path) -> None:
    class Count(int):
        pass

    table: Any = MappingProxyType({"v100": Count(10)})
    arguments = {"zoo": "mlp", "arguments": {"widths": (1, 2)}, "batch_size": 4}
    model = Model([Segment("body", table, table, 100, 10)], [1], executor=arguments)  # type: ignore[arg-type]
    servers: Any = [Server("s0", "v100", Count(2), 10**9, 10**9)]
    jobs: Any = [Job("a", "net", 1, Count(1), depth=FreeDepth(Count(1)))]
    made = Instance("hand", Cluster(servers), {"net": model}, jobs)
    (tmp_path / "i.json").write_bytes(encode_instance(made))
    read = load_instance(tmp_path / "i.json")
    assert made == read and repr(made) == repr(read) and instance_sha256(made) == instance_sha256(read)
    assert hash(made.jobs[0]) == hash(read.jobs[0])


def test_what_is_altered_within_is_not_checked_again() -> None:
    assert altered(SERVER, gpus=0) == altered(altered(SERVER, name=""), name="s0", gpus=0)
    assert altered(SERVER) == SERVER


def test_none_is_no_default_but_where_it_is_the_default() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Job("a", "m", 1, 1, release_us=None, weight=None, depth=None)  # type: ignore[arg-type]
    assert {problem.path for problem in caught.value.problems} == {
        'Job("a").release_us',
        'Job("a").weight',
        'Job("a").depth',
    }
    assert Job("a", "m", 1, 1, deadline_us=None).deadline_us is None


def test_equal_instances_have_one_hash() -> None:
    """Also where mappings have another order, and jobs of every kind."""
    for seed in range(20):
        drawn = with_route_policies(random_mixed_instance(seed, "finite"), Random(seed))
        models = dict(reversed([*drawn.models.items()]))
        again = replace(drawn, models=models, jobs=[*drawn.jobs])  # type: ignore[arg-type]
        assert again == drawn and hash(again) == hash(drawn) == hash(decode_instance(encode_instance(drawn)))
        other = replace(drawn, name="other")
        assert other != drawn and {drawn: 1, other: 2}[again] == 1
        assert hash(pickle.loads(pickle.dumps(drawn))) == hash(drawn)


JOBS = (JobPlan("j", ("s/0",), (Iteration((Block(1, 0, 10),), ()),)),)


def phased(*phases: Phase) -> Plan:
    return Plan("long", "", "feasible", 40, 30, (PhaseGroup(phases),))


def test_a_plan_without_a_period_is_one_phase_once_and_one_with_a_period_for_ever() -> None:
    listed, cyclic = (Plan.of_jobs("i", "", "feasible", 10, 5, period, JOBS) for period in (None, 10))
    assert listed.groups == (PhaseGroup((Phase(0, None, 1, JOBS),)),)
    assert cyclic.groups == (PhaseGroup((Phase(0, 10, None, JOBS),)),)
    assert listed.with_period(10) == cyclic and cyclic.with_period(None) == listed
    assert (listed.jobs, listed.period_us, listed.is_phased) == (JOBS, None, False)
    assert (cyclic.jobs, cyclic.period_us, cyclic.is_phased) == (JOBS, 10, False)
    assert listed.with_jobs(()).jobs == ()
    assert listed.groups[0].phases[0].end_us == 10


def test_a_phased_plan_has_no_single_list_of_jobs() -> None:
    plan = phased(Phase(0, 10, 4, JOBS))
    assert plan.is_phased and phased().is_phased and plan.groups[0].phases[0].end_us == 40
    for get in (lambda: plan.jobs, lambda: plan.period_us, lambda: plan.data_parallel, lambda: plan.with_jobs(())):
        with misuse("unsupported", "unsupported", naming=["'long'", "phases", "--solver search"]):
            get()


@pytest.mark.parametrize("phase", [(0, None, 2), (0, None, None), (5, None, 1), (5, 10, None)])
def test_a_phase_that_is_not_counted_begins_at_0_and_takes_place_once_or_for_ever(
    phase: tuple[int, int | None, int | None],
) -> None:
    with pytest.raises(UsageError):
        Phase(*phase, JOBS)


@pytest.mark.parametrize("other", [Phase(0, None, 1, JOBS), Phase(0, 10, None, JOBS)])
def test_each_of_several_phases_has_a_number_of_repetitions(other: Phase) -> None:
    with misuse("missing-field", naming=["period", "repetitions"]):
        phased(Phase(0, 10, 4, JOBS), other)


def test_endless_phases_have_no_end_and_single_ones_no_period() -> None:
    with pytest.raises(UsageError, match="for ever"):
        _ = Phase(0, 10, None, JOBS).end_us
    with pytest.raises(UsageError, match="have a period"):
        _ = Phase(0, None, 1, JOBS).cycle_us


def test_plans_and_results_are_shown_on_one_line() -> None:
    cyclic = Plan.of_jobs("i", "", "feasible", 10, 5, 10, JOBS)
    assert repr(cyclic) == "<Plan of 'i': 1 job, period 10, gap 50.00 %>"
    assert repr(replace(cyclic.with_period(None), bound=10)) == "<Plan of 'i': 1 job, objective 10, gap 0.00 %>"
    assert repr(phased(Phase(0, 10, 4, JOBS))) == "<Plan of 'long': 1 job, 1 phase, objective 40, gap 25.00 %>"
    result = replace(solve(instances.load("tiny/000"), "greedy", Options(threads=1)), objective=10, bound=8, seconds=1)
    known = "feasible (bound by the relaxation gpu_work): objective 10, bound 8, gap 20.00 %"
    assert repr(result) == f"<Result {known}, stopped by completed after 1.00 s>"
