"""Printing what a replay found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jigsaw_opt.cli.output import print_json, print_table
from jigsaw_opt.problem.replay import Replay, ReplaySummary

__all__ = ["print_summary"]


def print_summary(replay: Replay, as_json: bool) -> None:
    """Predicted against measured, the plan and its baseline, as a table or as JSON."""
    if as_json:
        print_json(_as_json(replay))
        return
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
        "busy predicted",
        "busy",
    )
    print_table(headers, [(row, *_cells(summary)) for row, summary in rows], headers[1:])
    gpus = [(gpu.name, gpu.memory_bytes, gpu.planned_memory_bytes) for gpu in replay.gpus]
    print()
    print_table(("gpu", "memory bytes", "planned bytes"), gpus, ("memory bytes", "planned bytes"))
    speed_up = replay.speed_up()
    if speed_up is not None and replay.baseline is not None:
        predicted, measured = speed_up
        found = "not measured" if measured is None else f"{measured:.3f} measured"
        print(f"\nspeed-up over {replay.baseline.policy}: {predicted:.3f} predicted, {found}")


def _cells(summary: ReplaySummary) -> tuple[object, ...]:
    errors = (summary.error, summary.block_error, summary.block_error_p90, summary.block_bias)
    shares = (summary.busy_predicted, summary.busy_measured)
    return (summary.predicted_us, summary.measured_us, *map(_percent, errors), *map(_percent, shares))


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _as_json(replay: Replay) -> dict[str, Any]:
    baseline = replay.baseline and {"policy": replay.baseline.policy, **asdict(replay.baseline.summary)}
    return {
        "machine": dict(replay.machine),
        "summary": {**asdict(replay.summary), "error": replay.summary.error},
        "baseline": baseline,
        "speed_up": replay.speed_up(),
        "gpus": [asdict(gpu) for gpu in replay.gpus],
    }
