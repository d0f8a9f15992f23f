"""A simulation as one interactive HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.simulation.metrics import SimulationSummary, completion_us, restarts_so_far
from jigsaw_opt.simulation.outages import server_outages
from jigsaw_opt.simulation.records import RoundRecord, SimulationOutcome
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.text import printable
from jigsaw_opt.views.colour import job_colour
from jigsaw_opt.views.measures import MEASURES
from jigsaw_opt.views.page import filled
from jigsaw_opt.views.simulation_words import findings, job_times, server_uses, waits

__all__ = ["simulation_html"]

_BINS = 600
_SERVER_BINS = 200
_WAITS = 10
"""Number of jobs in the table of the longest waits."""
_HOUR_US = 3_600_000_000
_Interval = tuple[int, int, float]
"""Beginning, end, and the value that holds between them."""


def simulation_html(setting: Setting, outcome: SimulationOutcome, summary: SimulationSummary, title: str) -> str:
    """Return the page: completion times, GPUs in use, queue and restarts over time, a timeline of all jobs.

    Names from the trace are data to the page and never markup.
    """
    return filled("simulation.html", title, _data(setting, outcome, summary, title))


def _data(setting: Setting, outcome: SimulationOutcome, summary: SimulationSummary, title: str) -> dict[str, object]:
    jobs = setting.workload.jobs
    models = sorted(set(map(_model_name, jobs)))
    number = {model: k for k, model in enumerate(models)}
    times = job_times(setting, outcome)
    ended = (record for record in outcome.jobs if record.finish_us is not None)
    return {
        "title": printable(title),
        "workload": printable(setting.workload.name),
        "gpus": setting.gpu_count,
        "end": outcome.end_us,
        "summary": [(*MEASURES[name], value) for name, value in asdict(summary).items()],
        "completion": sorted(completion_us(setting, record) / _HOUR_US for record in ended),
        "charts": _charts(setting, outcome),
        "models": [{"name": printable(model), "colour": job_colour(k)} for k, model in enumerate(models)],
        "jobs": [
            [
                printable(job.name),
                number[_model_name(job)],
                job.submit_us,
                r.finish_us,
                r.restarts,
                record.waited,
                record.held,
                record.paused,
            ]
            for r, record in zip(outcome.jobs, times, strict=True)
            for job in (jobs[r.index],)
        ],
        "findings": findings(setting, outcome),
        "waits": [record.index for record, _ in waits(setting, outcome, _WAITS)],
        "servers": _servers(setting, outcome),
        "stints": [[stint.job, stint.start_us, stint.end_us, stint.gpus, list(stint.on)] for stint in outcome.stints],
        "names": [
            printable(setting.cluster.gpu_name(k, gpu - own.start))
            for k, own in enumerate(setting.for_policy.gpus_of)
            for gpu in own
        ],
    }


def _model_name(job: TraceJob) -> str:
    """Return what the page calls the model of a job, of which some have none."""
    return job.model if job.duration_us is None else "stated duration"


def _servers(setting: Setting, outcome: SimulationOutcome) -> list[dict[str, object]]:
    """Return mean GPUs of each server that are held over time."""
    return [
        {"name": printable(server.name), "gpus": server.gpus, "values": _binned(uses, outcome.end_us, _SERVER_BINS)}
        for server, uses in zip(setting.cluster.servers, server_uses(setting, outcome), strict=True)
    ]


def _charts(setting: Setting, outcome: SimulationOutcome) -> list[dict[str, object]]:
    rounds = outcome.rounds
    waiting = _steps(rounds, [record.active - record.running for record in rounds], outcome.end_us)
    down, end_us = _down(setting, outcome.end_us), outcome.end_us
    use, restarts = _binned(_use(outcome), end_us), _binned(_steps(rounds, restarts_so_far(outcome), end_us), end_us)
    return [
        {"name": "GPUs in use", "unit": "GPUs", "most": setting.gpu_count, "values": use},
        {"name": "jobs waiting", "unit": "jobs", "values": _binned(waiting, end_us)},
        {"name": "restarts so far", "unit": "restarts", "values": restarts},
        *down,
    ]


def _down(setting: Setting, end_us: int) -> list[dict[str, object]]:
    """Return GPUs of servers that are down over time; nothing where none ever is."""
    outages = server_outages(setting.failures, setting.cluster, end_us)
    gpus = [(down_us, up_us, setting.cluster.servers[server].gpus) for server, down_us, up_us in outages]
    chart = {"name": "GPUs down", "unit": "GPUs", "most": setting.gpu_count, "values": _binned(gpus, end_us)}
    return [chart] if gpus else []


def _steps(rounds: Sequence[RoundRecord], values: Sequence[int], end_us: int) -> Iterable[_Interval]:
    """Return intervals (start, end, value) of a value that each round sets, in microseconds."""
    times = [*(record.time_us for record in rounds[1:]), end_us]
    return ((record.time_us, until, value) for record, until, value in zip(rounds, times, values, strict=False))


def _use(outcome: SimulationOutcome) -> Iterable[_Interval]:
    """Return mean GPUs held between two rounds; after the last one, what the jobs held in all and is left."""
    before = 0
    for record in outcome.rounds:
        if record.time_us > before:
            yield before, record.time_us, record.held_gpu_us / (record.time_us - before)
        before = record.time_us
    left = sum(job.gpu_us for job in outcome.jobs) - sum(record.held_gpu_us for record in outcome.rounds)
    if outcome.end_us > before:
        yield before, outcome.end_us, max(0, left) / (outcome.end_us - before)


def _binned(intervals: Iterable[_Interval], end_us: int, bins: int = _BINS) -> list[float]:
    """Return means over equal parts of the time from 0 to the end."""
    width = max(1.0, end_us / bins)
    sums = [0.0] * bins
    for start, end, value in intervals:
        first, last = int(start / width), min(bins - 1, int(end / width))
        for k in range(first, last + 1):
            sums[k] += value * max(0.0, min(end, (k + 1) * width) - max(start, k * width))
    return [round(total / width, 3) for total in sums]
