"""Printing what a replay found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import Any

from jigsaw_opt.cli.common.output import print_json, print_table
from jigsaw_opt.problem.measured.replay import MeasuredGpu, MeasuredPhase, Replay, ReplaySummary
from jigsaw_opt.text import named

_PERIOD = ("period predicted us", "measured us", "error", "block error")


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
    headers = (
        "",
        f"{name} predicted us",
        "measured us",
        "error",
        "block error",
        "p90",
        "bias",
        "transfer error us",
        "busy predicted",
        "busy",
    )
    print_table(headers, [(row, *_cells(summary)) for row, summary in rows], headers[1:])
    if replay.kinds:
        print()
        kinds = [
            (kind, summary.count, summary.planned_us, summary.measured_us, _percent(summary.error))
            for kind, summary in replay.kinds.items()
        ]
        print_table(
            ("", "measured", "planned us", "took us", "error"), kinds, ("measured", "planned us", "took us", "error")
        )
    _print_gpus(replay.gpus)
    if replay.building_us:
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
        f"{_known(measured)} us {where} ({planned} planned)"
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


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


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
    return {
        "group": phase.group,
        "phase": phase.number,
        "jobs": [job.name for job in phase.timeline.jobs],
        "repeats": phase.repeats,
        "repeated": phase.repeated,
        "period": phase.summary and {**asdict(phase.summary), "error": phase.summary.error},
        "predicted_end_us": phase.predicted_end_us,
        "measured_begin_us": phase.measured_begin_us,
        "measured_end_us": phase.measured_end_us,
        "seam_us": phase.seam_us,
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
