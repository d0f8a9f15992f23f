"""A replay is shown beside its plan, in every picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents.replay import encode_replay, plan_sha256, require_replay_of
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.measured.replay import Baseline, MeasuredGpu, MeasuredPhase, Replay, ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredBlock, MeasuredIteration, MeasuredJob, Timeline
from jigsaw_opt.problem.plan import Transfer
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import Interval
from jigsaw_opt.views.perfetto import perfetto_trace
from jigsaw_opt.views.replay import replay_picture
from tests.refusals import refuses
from tests.views.test_views import crossing, embedded

SUMMARY = ReplaySummary("makespan", 1800, 1980, 0.1, 0.2, 0.05, 3, 0.8, 0.7)


def carried_out(plan: Plan, passes: int, origins: tuple[int, ...], first: int = 0) -> Replay:
    """A replay in which everything starts 10 us late and lasts as long as planned."""
    length = plan.period_us or 0
    starts = origins or tuple(length * turn for turn in range(passes))
    jobs = []
    for job in plan.jobs:
        iterations = tuple(
            MeasuredIteration(
                tuple(MeasuredBlock(b.level, b.start_us + t + 10, b.end_us + t + 10, 0.5) for b in iteration.blocks),
                tuple(Transfer(x.bucket, x.start_us + t + 10, x.end_us + t + 10) for x in iteration.transfers),
            )
            for t in starts
            for iteration in job.iterations
        )
        jobs.append(MeasuredJob(job.name, job.gpus, first, iterations, ("",) * len(job.gpus)))
    gpus = (MeasuredGpu("s0/0", 2, 1),)
    timeline = Timeline(passes + first, origins, tuple(jobs))
    digests = {job.name: job.parameters_sha256 for job in jobs}
    only = MeasuredPhase.only(SUMMARY, timeline)
    return Replay(plan.instance, plan.instance_sha256, plan_sha256(plan), {}, gpus, (only,), digests)


def with_timeline(replay: Replay, timeline: Timeline) -> Replay:
    return replace(replay, phases=(MeasuredPhase.only(replay.summary, timeline),))


def test_each_lane_of_the_plan_has_what_was_measured_below(pair: Instance, pair_plan: Plan) -> None:
    shown = replay_picture(pair, pair_plan, carried_out(pair_plan, 2, (5, 2005)))
    assert [lane.name for lane in shown.lanes] == ["s0/0", "s0/0 measured", "s0/1", "s0/1 measured"]
    planned, measured = shown.lanes[2].intervals, shown.lanes[3].intervals
    assert planned[0] == Interval(5, 605, 0, 0, 1, 1) and planned[-1] == Interval(2605, 3805, 1, 1, 0, 2)
    assert [(m.start_us - 10, *m[2:]) for m in measured] == [(p.start_us, *p[2:]) for p in planned]
    assert shown.end_us == 3815


def test_a_cyclic_plan_is_laid_out_period_by_period() -> None:
    instance, plan = crossing()
    shown = replay_picture(instance, plan, carried_out(plan, 3, ()))
    assert [lane.name for lane in shown.lanes][-2:] == ["ab", "ab measured"]
    assert [i.start_us for i in shown.lanes[0].intervals] == [5, 35, 65]
    assert [i.start_us for i in shown.lanes[-1].intervals] == [35, 65, 95]
    late = replay_picture(instance, plan, carried_out(plan, 3, (), first=2))
    assert [(i.start_us, i.iteration) for i in late.lanes[2].intervals] == [(0, 2), (30, 3), (60, 4)]


def test_overlaps_that_clocks_leave_are_cut_off(pair: Instance, pair_plan: Plan) -> None:
    found = carried_out(pair_plan, 1, (0,))
    job = found.timeline.jobs[1]
    early = tuple(replace(block, start_us=block.start_us - 7) for block in job.iterations[0].blocks)
    jobs = (found.timeline.jobs[0], replace(job, iterations=(replace(job.iterations[0], blocks=early),)))
    shown = replay_picture(pair, pair_plan, with_timeline(found, replace(found.timeline, jobs=jobs)))
    assert [i[:2] for i in shown.lanes[3].intervals] == [(10, 610), (610, 1810)]


def test_page_and_trace_tell_planned_from_measured(pair: Instance, pair_plan: Plan) -> None:
    replay = carried_out(pair_plan, 1, (0,))
    usual = replace(SUMMARY, predicted_us=2400, measured_us=2772)
    shown = replay_picture(pair, pair_plan, replace(replay, baseline=Baseline("gang", usual, replay.timeline)))
    facts = dict(embedded(timeline_html(shown))["facts"])
    assert facts["measured makespan"] == "1.980 ms (+10.0 %)"
    assert facts["GPUs busy"] == "70.0 % (80.0 % planned)"
    assert facts["speed-up over gang"] == "1.400 (1.333 predicted)"
    events = json.loads(perfetto_trace(shown))["traceEvents"]
    processes = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {"server s0", "measured server s0"}
    assert len([e for e in events if e["ph"] == "X"]) == 6


def test_the_commands_take_a_replay_of_this_plan_only(
    pair_path: Path, pair_plan_path: Path, pair_plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "replay.json"
    replay = carried_out(pair_plan, 1, (0,))
    file.write_bytes(encode_replay(replay))
    plot = ["plot", str(pair_path), str(pair_plan_path), "--replay", str(file)]
    assert main(plot) == 0
    assert "s0/1 measured |" in capsys.readouterr().out
    trace = tmp_path / "trace.json"
    export = ["export", *plot[1:], "--to", "perfetto", "-o", str(trace)]
    assert main(export) == 0 and "measured" in trace.read_text()
    file.write_bytes(encode_replay(replace(replay, plan_sha256="0")))
    assert main(plot) == 3
    assert "another plan" in capsys.readouterr().err


def test_an_incomplete_replay_is_refused_with_everything_that_is_missing(pair_plan: Plan) -> None:
    replay = carried_out(pair_plan, 1, (0,))
    first, second = replay.timeline.jobs
    [iteration] = first.iterations
    raised = tuple(replace(block, level=9) for block in iteration.blocks)

    def alone(**changes: Any) -> tuple[MeasuredJob, ...]:
        return replace(first, iterations=(replace(iteration, **changes),)), second

    where = "r.timeline.jobs"
    for refused, named, changes in (
        (f"wrong-count {where}[0].iterations[0].blocks", "", {"jobs": alone(blocks=iteration.blocks[:1])}),
        (f"wrong-count {where}[0].iterations[0].blocks", "2 levels", {"jobs": alone(blocks=raised)}),
        (f"wrong-count {where}[0].iterations[0].transfers", "", {"jobs": alone(transfers=iteration.transfers[:1])}),
        (f"wrong-count {where}[1].iterations", "0 iterations", {"jobs": (first, replace(second, iterations=()))}),
        (f"wrong-count {where}[1].iterations", "number 7", {"jobs": (first, replace(second, first_iteration=7))}),
        (f"mismatch {where}", "", {"jobs": (first,)}),
        (f"mismatch {where}", "", {"jobs": (replace(first, gpus=("s0/0", "s9/1")), second)}),
        ("wrong-count r.timeline.origins_us", "", {"origins_us": (0, 1)}),
    ):
        with refuses(refused, naming=[named]):
            require_replay_of(pair_plan, with_timeline(replay, replace(replay.timeline, **changes)), "r")


def test_a_resumed_replay_of_which_nothing_was_left_is_shown(pair: Instance, pair_plan: Plan) -> None:
    replay = carried_out(pair_plan, 0, (), first=1)
    require_replay_of(pair_plan, replay, "replay.json")
    assert replay_picture(pair, pair_plan, replay).end_us == 0


def test_passes_that_were_carried_out_long_ago_take_no_time() -> None:
    instance, plan = crossing()
    late = carried_out(plan, 2, (), first=2**50)
    require_replay_of(plan, late, "replay.json")
    assert [i.iteration for i in replay_picture(instance, plan, late).lanes[2].intervals] == [2**50, 2**50 + 1]
