"""A caller of the package, checked by mypy in strict mode with the package itself and run by `test_facade`."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import jigsaw_opt as jo


def build() -> jo.Instance:
    builder = jo.InstanceBuilder("typed", horizon="finite", objective="makespan")
    builder.add_server("s0", gpu_type="v100", gpus=2, gpu_memory=10**10, fabric_bandwidth=10**10)
    builder.add_model("net", [jo.Segment("all", {"v100": 5}, {"v100": 7}, 10, 10)], levels=[1])
    builder.add_job("a", model="net", workers=2, iterations=1, depth=jo.FreeDepth(min_contributors=1))
    return builder.build()


def plans(instance: jo.Instance, cancel: threading.Event) -> Iterator[jo.Plan]:
    options = jo.Options(threads=1, seed=3, engine_parameters={"log_prefix": "x"}, engine_log=10, cancel=cancel)
    with jo.solving(instance, "cpsat", options) as events:
        for event in events:
            plan: jo.Plan | None = event.plan
            if plan is not None:
                yield plan


def call() -> tuple[jo.Status, int | None, int, float | None, tuple[jo.Violation, ...]]:
    instance, seen = build(), list[tuple[float, int | None, int]]()

    def report(event: jo.Event) -> None:
        seen.append((event.seconds, event.objective, event.bound))

    result: jo.Result = jo.solve(instance, "greedy", jo.Options(), on_event=report)
    stopped: jo.StoppedBy = result.stopped_by
    assert seen and stopped is jo.StoppedBy.PROOF and result.plan is not None
    again = jo.solve(
        instance, start=result.plan, fix=jo.Fix(jo.placements_of(result.plan)), time_limit=20, on_event=report
    )
    return again.status, again.objective, again.bound, again.gap, jo.check(instance, result.plan)


def days(instance: jo.Instance, trace: str) -> float | None:
    found: jo.SimulationResult = jo.simulate(trace, instance, "fifo", cancel=threading.Event())
    return found.summary.mean_completion_h


def measured(instance: jo.Instance, plan: jo.Plan) -> int | None:
    replay: jo.Replay | None = jo.run_plan(jo.ReplayRequest(instance, plan, passes=1))
    return None if replay is None else replay.summary.measured_us


def told(error: jo.InvalidInputError) -> list[str]:
    problems: tuple[jo.Problem, ...] = error.problems
    return [f"{problem.path} {problem.message} {problem.hint}" for problem in problems]
