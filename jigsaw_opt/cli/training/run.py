"""Carry a plan out with PyTorch, one process a GPU, and compare what was predicted with what is measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import PLAN, PROGRESS, Arguments
from jigsaw_opt.cli.common.options import checked_plan, warn_of_levels
from jigsaw_opt.cli.common.output import emit, ended, goes_on_from, print_json, print_table, require_output
from jigsaw_opt.cli.common.progress import logged_progress
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.executor.schedules.records import InterruptedRunError
    from jigsaw_opt.problem.measured.replay import MeasuredGpu, MeasuredPhase, Replay, ReplaySummary

_PERIOD = ("period predicted us", "measured us", "error", "block error")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


EXAMPLE = "jigsaw run instance.json plan.json --dry --iterations 10 -o replay.json"
ARGUMENTS: Arguments = {
    **PLAN,
    "-o, --output FILE": "write the replay document here",
    "--json": "print the summary as JSON",
    "--iterations N": {
        "help": "times that the plan is carried out; of a phased plan, at most so many repetitions of each"
        " phase (default: 1; cyclic and phased: 10)",
        "dest": "passes",
    },
    "--dry": "train nothing: jobs sleep for as long as the plan says, in its order",
    "--time-triggered": "start nothing before its planned start",
    "--baseline fifo|gang|alone": "then the same jobs at full depth, one at a time on its GPUs; or those of the"
    " foreground alone",
    "--foreground NAME[,NAME]": {
        "help": "jobs that the baseline alone has (default: the only one with a cycle-time limit)",
        "type": _names,
        "action": "extend",
        "default": [],
    },
    **PROGRESS,
    "machine:": {
        "--device cpu|cuda = cpu": "where to run",
        "--backend gloo|nccl = gloo": "nccl: a device for each process",
        "--threads N = 1": "threads of a process on the CPU",
        "--trust MODULE:FUNCTION *": {"help": "code that a job names, to be imported and run", "dest": "trusted"},
        "--partition FILE": "a pipeline: stages with their layers, which are modules of the model that the"
        " function returns",
        "--warm-up N = 2": "rounds before the clock starts",
    },
    "training:": {
        "--optimiser sgd|adam|adamw = sgd": "optimiser of the zoo's jobs (default: sgd, with momentum)",
        "--learning-rate R = 0.01": {"help": "learning rate of the zoo's jobs", "type": float},
        "--averaging avg_w_count|avg = avg_w_count": "how gradients of data-parallel jobs are averaged",
        "--seed N = 0": "seed of parameters and data",
    },
    "checkpoints:": {
        "--checkpoint DIR": "save all workers here",
        "--checkpoint-every N": {"help": "after N iterations of a job and at the end", "dest": "every"},
        "--resume": "go on from the last whole checkpoint in DIR",
    },
}


def run(arguments: argparse.Namespace) -> int:
    """Carry the plan out, print the summary, write the replay."""
    from jigsaw_opt.executor import require_torch
    from jigsaw_opt.executor.run_plan import run_plan
    from jigsaw_opt.executor.schedules.records import InterruptedRunError
    from jigsaw_opt.executor.schedules.request import ReplayRequest, ReplaySettings

    require_output(arguments.output, arguments.instance, arguments.plan)
    # What is out of range is told before any file is read.
    given = {each.name: getattr(arguments, each.name) for each in fields(ReplaySettings)}
    given |= {name: tuple(given[name]) for name in ("trusted", "foreground")}
    settings = ReplaySettings(**given)
    if arguments.resume:
        goes_on_from(arguments.checkpoint)
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    require_torch()
    if not settings.dry:
        warn_of_levels(instance, plan)
    try:
        with logged_progress(arguments, "a dry run" if settings.dry else "training"):
            found = run_plan(ReplayRequest(instance, plan, **vars(settings)))
    except InterruptedRunError as interrupted:
        _write(interrupted.found, arguments)
        return ended(True, _kept(interrupted, arguments))
    _write(found, arguments)
    return 0


def _kept(interrupted: InterruptedRunError, arguments: argparse.Namespace) -> str:
    """Return what an interrupted run has kept, and how to go on."""
    measured = "nothing was measured" if interrupted.found is None else "what was measured is told above"
    if arguments.dry:
        return f"{measured}; a dry run begins anew"
    if interrupted.saved is None:
        return f"{measured}; no worker is saved: --checkpoint DIR keeps them, to go on with --resume"
    saved = [f"{job} after {count} iterations" for job, count in interrupted.saved.items() if count]
    if not saved:
        how = "the same command and --resume begins anew"
        return f"{measured}; no job is saved as a whole yet in {arguments.checkpoint}; {how}"
    return f"{measured}; saved in {arguments.checkpoint}: {named(saved)}; go on with the same command and --resume"


def _write(found: Replay | None, arguments: argparse.Namespace) -> None:
    """Write what was measured, and print its summary; None, in all processes of torchrun but the first, is nothing."""
    from jigsaw_opt.documents.replay import encode_replay

    if found is None:
        return
    try:
        if arguments.output is not None:
            emit(encode_replay(found), arguments.output)
    finally:
        print_replay(found, arguments.json)


def print_replay(replay: Replay, as_json: bool) -> None:
    """Print predicted against measured: the plan and its baseline, or period and end of all phases."""
    if as_json:
        print_json(_phases_as_json(replay) if replay.counts_repeats else _as_json(replay))
    elif replay.counts_repeats:
        _print_phases(replay)
    else:
        _print_summary(replay)
    if replay.machine.get("dry") and not as_json:
        print("\nA dry run: jobs slept for as long as the plan says, and nothing was trained.")


def _print_summary(replay: Replay) -> None:
    rows = [("plan", replay.summary)]
    if replay.baseline is not None:
        rows.append((replay.baseline.policy, replay.baseline.summary))
    name = replay.summary.objective
    errors = ("error", "block error", "p90", "bias", "transfer error us")
    figures = (f"{name} predicted us", "measured us", *errors, "busy predicted", "busy")
    print_table(("", *figures), [(row, *_cells(summary)) for row, summary in rows], figures)
    for row, summary in rows:
        if summary.measured_us is None:
            print(f"\n{row}: the run was too short to measure its {name}; --iterations makes it longer")
    if replay.kinds:
        print()
        kinds = [
            (kind, summary.count, summary.planned_us, summary.measured_us, _percent(summary.error))
            for kind, summary in replay.kinds.items()
        ]
        told = ("measured", "planned us", "took us", "error")
        print_table(("", *told), kinds, told)
    _print_gpus(replay.gpus)
    if replay.building_us and not replay.machine.get("dry"):
        print(f"\nBuilding workers between jobs took {replay.building_us} us, which no other time has in it.")
    if replay.cycles:
        _print_rates(replay)
    speed_up = replay.speed_up()
    if speed_up is not None and replay.baseline is not None:
        predicted, measured = speed_up
        found = "not measured" if measured is None else f"{measured:.3f} measured"
        print(f"\nspeed-up over {replay.baseline.policy}: {predicted:.3f} predicted, {found}")


def _print_rates(replay: Replay) -> None:
    """Print what every job got, and how much longer the foreground takes beside the others."""
    rows = [(name, *(_rate(rate) for rate in cycle.rates())) for name, cycle in replay.cycles.items()]
    print()
    print_table(("job", "iterations a second planned", "measured"), rows, ("iterations a second planned", "measured"))
    slow_down = replay.slow_down()
    if slow_down is None or replay.baseline is None or replay.baseline.together is None:
        return
    together, alone = replay.baseline.together, replay.baseline.summary
    names = named([job.name for job in replay.baseline.timeline.jobs])
    times = [
        f"{'unknown' if measured is None else measured} us {where} ({planned} planned)"
        for where, measured, planned in (
            ("alone", alone.measured_us, alone.predicted_us),
            ("beside the others", together.measured_us, together.planned_us),
        )
    ]
    planned, measured = slow_down
    found = "not measured" if measured is None else f"{measured:.3f} measured"
    print(f"\n{names}, {alone.objective}: {', '.join(times)}; slow-down {found}, {planned:.3f} planned")


def _rate(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.2f}"


def _print_phases(replay: Replay) -> None:
    headers = ("group", "phase", "repeated", *_PERIOD, "end predicted us", "end measured us", "end error", "seam us")
    print_table(headers, map(_phase_row, replay.phases), headers[2:])
    rows = [(phase.group, phase.number, *astuple(restart)) for phase in replay.phases for restart in phase.restarts]
    if rows:
        print()
        print_table(("group", "phase", "job", "restart us", "away us"), rows, ("restart us", "away us"))
    _print_gpus(replay.gpus)
    row = (replay.predicted_us, replay.measured_us, _percent(_error(replay.predicted_us, replay.measured_us)))
    print("\nmakespan: {} us predicted, {} us measured, error {}".format(*("unknown" if x is None else x for x in row)))
    if replay.is_cut:
        print("Repetitions that were left out count with the measured period of their phase.")


def _phase_row(phase: MeasuredPhase) -> tuple[object, ...]:
    found = phase.summary
    cells: tuple[object, ...] = (None,) * len(_PERIOD)
    if found is not None:
        cells = (found.predicted_us, found.measured_us, _percent(found.error), _percent(found.block_error))
    end = (
        phase.predicted_end_us,
        phase.measured_end_us,
        _percent(_error(phase.predicted_end_us, phase.measured_end_us)),
    )
    return (phase.group, phase.number, f"{phase.repeated} of {phase.repeats}", *cells, *end, phase.seam_us)


def _error(predicted: int, measured: int | None) -> float | None:
    return None if measured is None else measured / predicted - 1


def _phases_as_json(replay: Replay) -> dict[str, Any]:
    return {
        "machine": dict(replay.machine),
        "predicted_us": replay.predicted_us,
        "measured_us": replay.measured_us,
        "extrapolated": replay.is_cut,
        "phases": [_phase_as_json(phase) for phase in replay.phases],
        "gpus": [asdict(gpu) for gpu in replay.gpus],
        "parameters_sha256": dict(replay.parameters_sha256),
    }


def _phase_as_json(phase: MeasuredPhase) -> dict[str, Any]:
    times = ("predicted_end_us", "measured_begin_us", "measured_end_us", "seam_us")
    return {
        "group": phase.group,
        "phase": phase.number,
        "jobs": [job.name for job in phase.timeline.jobs],
        "repeats": phase.repeats,
        "repeated": phase.repeated,
        "period": phase.summary and {**asdict(phase.summary), "error": phase.summary.error},
        **{name: getattr(phase, name) for name in times},
        "restarts": [asdict(restart) for restart in phase.restarts],
    }


def _print_gpus(found: Sequence[MeasuredGpu]) -> None:
    gpus = [(gpu.name, gpu.memory_bytes, gpu.planned_memory_bytes) for gpu in found]
    print()
    print_table(("gpu", "memory bytes", "planned bytes"), gpus, ("memory bytes", "planned bytes"))


def _cells(summary: ReplaySummary) -> tuple[object, ...]:
    errors = (summary.error, summary.block_error, summary.block_error_p90, summary.block_bias)
    shares = (summary.busy_predicted, summary.busy_measured)
    times = (summary.predicted_us, summary.measured_us)
    return (*times, *map(_percent, errors), summary.transfer_error_us, *map(_percent, shares))


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _as_json(replay: Replay) -> dict[str, Any]:
    baseline = replay.baseline and {"policy": replay.baseline.policy, **asdict(replay.baseline.summary)}
    rates = {
        name: dict(zip(("planned", "measured"), cycle.rates(), strict=True)) for name, cycle in replay.cycles.items()
    }
    slow_down = replay.slow_down()
    if baseline and replay.baseline and replay.baseline.together is not None:
        baseline |= {"together": asdict(replay.baseline.together)}
    return {
        "machine": dict(replay.machine),
        "summary": {**asdict(replay.summary), "error": replay.summary.error},
        "baseline": baseline,
        "speed_up": replay.speed_up(),
        **({"rates_per_s": rates} if rates else {}),
        **({"slow_down": dict(zip(("planned", "measured"), slow_down, strict=True))} if slow_down else {}),
        **({"kinds": {kind: asdict(error) for kind, error in replay.kinds.items()}} if replay.kinds else {}),
        **({"building_us": replay.building_us} if replay.building_us else {}),
        "gpus": [asdict(gpu) for gpu in replay.gpus],
    }
