"""Pictures of plans whose jobs have task graphs."""

from __future__ import annotations

import json
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import (
    Cluster,
    Execution,
    Instance,
    Link,
    MemoryInterval,
    Plan,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
    TaskGraphTransfer,
)
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import Interval, picture
from jigsaw_opt.views.memory import MemoryStep, memory_use
from jigsaw_opt.views.perfetto import perfetto_trace
from tests.random_task_graphs import one_after_another, random_task_graph_instance
from tests.views.test_views import embedded


def pipe(period: int | None = None) -> tuple[Instance, Plan]:
    """Forward and backward on one GPU with two bytes held in between, a block on both GPUs, and a transfer."""
    shape = TaskGraph(
        (Slot("s0", 10), Slot("s1")),
        (
            TaskGraphBlock("F", ("s0",), {"v": 2}),
            TaskGraphBlock("B", ("s0",), {"v": 4}),
            TaskGraphBlock("both", ("s0", "s1"), {"v": 1}),
        ),
        (TaskGraphTransfer("act", 3, "s0", "s1"),),
        holds=(MemoryInterval("F", "B", 2),),
    )
    cluster = Cluster((Server("a", "v", 1, 100, 1), Server("b", "v", 1, 100, 1)), (), (Link("ab", ("a", "b"), 10**6),))
    horizon, objective = ("cyclic", "period") if period else ("finite", "makespan")
    job = TaskGraphJob("pipe", shape, 1)
    instance = Instance("pipe", cluster, {}, (job,), horizon, objective)
    blocks, transfers = (Execution(3, 5), Execution(8, 12), Execution(12, 13)), (Execution(5, 8),)
    done = TaskGraphJobPlan("pipe", ("a/0", "b/0"), (TaskGraphIteration(blocks, transfers),))
    return instance, Plan.of_jobs("pipe", "", "feasible", period or 13, 1, period, (done,))


def test_blocks_are_on_all_their_gpus_and_transfers_on_links() -> None:
    gpu, other, link = picture(*pipe()).lanes
    both = Interval(12, 13, 0, 0, 2, 1)
    assert gpu.intervals == [Interval(3, 5, 0, 0, 0, 1), Interval(8, 12, 0, 0, 1, 1), both]
    assert other.intervals == [both]
    assert link.intervals == [Interval(5, 8, 0, 0, 3, 0)]


PIPE = ("pipe",)
"""Who takes memory there."""


def test_memory_is_that_of_slots_and_what_is_held() -> None:
    use = memory_use(*pipe())
    assert list(use) == ["a/0"]  # Nothing is taken of the other one.
    # The job takes nothing before its first operation.
    assert use["a/0"] == (100, (MemoryStep(0, 3, 0), MemoryStep(3, 12, 12, PIPE), MemoryStep(12, 13, 10, PIPE)))


def test_a_hold_longer_than_the_period_overlaps_itself() -> None:
    # It is held from 3 to 12, in a period of 7: twice from 3 to 5, once otherwise.
    steps = memory_use(*pipe(7))["a/0"].steps
    assert steps == (MemoryStep(0, 3, 12, PIPE), MemoryStep(3, 5, 14, PIPE), MemoryStep(5, 7, 12, PIPE))


def test_a_hold_of_whole_periods_is_there_all_the_time() -> None:
    assert memory_use(*pipe(9))["a/0"].steps == (MemoryStep(0, 9, 12, PIPE),)
    assert memory_use(*pipe(12))["a/0"].steps == (MemoryStep(0, 3, 10, PIPE), MemoryStep(3, 12, 12, PIPE))


def test_html_has_names_of_operations_and_a_lane_of_memory() -> None:
    data = embedded(timeline_html(picture(*pipe())))
    (job,) = data["jobs"]
    assert job["operations"] == ["F", "B", "both", "act"]
    lanes = [(lane["name"], lane["kind"]) for lane in data["lanes"]]
    assert lanes == [("a/0", "gpu"), ("a/0 memory", "memory"), ("b/0", "gpu"), ("ab", "link")]
    assert data["lanes"][1]["intervals"][1] == [3, 12, 12, 1]
    assert data["lanes"][1]["holders"] == ["", "pipe"]


def test_perfetto_names_operations_and_counts_memory() -> None:
    events = json.loads(perfetto_trace(picture(*pipe())))["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert sorted(names) == ["B", "F", "act", "both", "both"]
    counted = [(event["ts"], event["args"]["bytes"]) for event in events if "bytes" in event.get("args", {})]
    assert counted == [(0, 0), (3, 12), (12, 10), (13, 0)]


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_memory_shown_is_never_more_than_there_is_in_a_correct_plan(horizon: str) -> None:
    shown = 0
    for seed in range(60):
        instance = random_task_graph_instance(seed, horizon)
        plan = one_after_another(instance, Random(seed))
        if plan is None or any(v.rule != "memory" for v in check(instance, plan)):
            continue
        use = memory_use(instance, plan)
        over = any(step.bytes > held.bytes for held in use.values() for step in held.steps)
        wrong = [v for v in check(instance, plan) if any(gpu in v.message for gpu in use)]
        assert over == bool(wrong)
        shown += len(use)
        assert "operations" in timeline_html(picture(instance, plan))
    assert shown > 20
