"""SimGrid as a referee: cases as they should be, and where it is installed, the same ends as ours."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from importlib.util import find_spec

import pytest
from references import simgrid_replay

from jigsaw_opt.instances import load
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.solvers.solve import solve

needs_simgrid = pytest.mark.skipif(
    find_spec("simgrid") is None and "JIGSAW_SIMGRID" not in os.environ,
    reason="simgrid is not installed (JIGSAW_SIMGRID names an interpreter that has it)",
)


def test_ends_of_transfers_that_share_a_link() -> None:
    # Alone for a second, then shared evenly: 2 of 3 bytes are left for the first, and 1 for the second.
    flows = [(0, 3, Channel((0,), 1, 0)), (10**6, 1, Channel((0,), 1, 0)), (9 * 10**6, 1, Channel((0,), 1, 0))]
    assert simgrid_replay.fair_ends([1], flows) == [4, 3, 10]
    slow = [(0, 4, Channel((0,), 3, 0)), (0, 1, Channel((0,), 1, 0))]
    assert simgrid_replay.fair_ends([3], slow) == [Fraction(5, 3), 1]


def test_a_plan_becomes_tasks_that_wait_in_turn_or_for_their_starts() -> None:
    instance = load("tiny/016")
    plan = solve(instance, "greedy").plan
    assert plan is not None
    network, starts = simgrid_replay.plan_network(instance, plan)
    (planned, _), (turns, of) = (simgrid_replay.plan_case(network, starts, in_turn) for in_turn in (False, True))
    assert [task["release"] for task in planned["tasks"]] == [start / 10**6 for start in starts]
    assert {task["release"] for task in turns["tasks"]} == {0}
    assert of == [[number] for number in range(len(starts))]
    lengths = [sum(task["parts"]) if "parts" in task else task["bytes"] / task["rate"] for task in turns["tasks"]]
    assert lengths == pytest.approx([activity.duration_us / 10**6 for activity in network.activities])
    waits = [sum(len(task["after"]) for task in case["tasks"]) for case in (planned, turns)]
    assert len(network.waits) == waits[0] < waits[1]


def test_without_simgrid_it_says_what_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JIGSAW_SIMGRID", sys.executable)
    with pytest.raises(SystemExit, match="SimGrid did not run"):
        simgrid_replay.answers([{"bandwidths": [1], "tasks": [{"no": "task"}]}])


@needs_simgrid
@pytest.mark.parametrize("name", ["tiny/016", "pipeline/sharded"])
def test_simgrid_agrees_on_a_plan_and_sees_what_meets_on_a_link(name: str) -> None:
    instance = load(name)
    plan = solve(instance, "greedy").plan
    assert plan is not None
    network, starts = simgrid_replay.plan_network(instance, plan)
    ends = [(start + each.duration_us) / 10**6 for start, each in zip(starts, network.activities)]
    case, of = simgrid_replay.plan_case(network, starts, in_turn=False)
    twice = [dict(task, after=[]) for task in case["tasks"]]  # everything again at the same times
    (found,), (both,) = (
        simgrid_replay.answers([case]),
        simgrid_replay.answers([{**case, "tasks": [*case["tasks"], *twice]}]),
    )
    assert [found[own[0]][-1] for own in of] == pytest.approx(ends, rel=1e-6)
    assert max(both[own[0]][-1] for own in of) > 1.1 * max(ends)
