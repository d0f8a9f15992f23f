"""A simulation as one interactive HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.simulation.engine.outages import server_outages
from jigsaw_opt.simulation.engine.records import JobRecord, RoundRecord, SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.results.metrics import (
    MEASURES,
    SimulationSummary,
    completion_us,
    fairness,
    raw_told,
    restarts_so_far,
    with_efficiency,
)
from jigsaw_opt.simulation.results.result import JobTime, times_of
from jigsaw_opt.text import called, counted, duration, printable
from jigsaw_opt.views.lanes import job_colour
from jigsaw_opt.views.page import filled


def server_uses(setting: Setting, outcome: SimulationOutcome) -> list[list[tuple[int, int, int]]]:
    """Return for each server the intervals in which GPUs of it are held.

    For each server, start and end in microseconds, and the number of GPUs held; times without any are left out.
    """
    found: list[list[tuple[int, int, int]]] = [[] for _ in setting.cluster.servers]
    last = dict.fromkeys(range(len(found)), (0, 0))
    for time_us, server, gpus in [*outcome.uses, *((outcome.end_us, server, 0) for server in last)]:
        since_us, held = last[server]
        if held and time_us > since_us:
            found[server].append((since_us, time_us, held))
        last[server] = time_us, gpus
    return found


def findings(setting: Setting, outcome: SimulationOutcome) -> list[str]:
    """Return sentences on what reading left out, the last job, the longest wait, the most unfair and the idlest."""
    read = [f"Workload: {printable(line)}." for line in setting.workload.reading_told()]
    if raw := raw_told(outcome.raw_models):
        read.append(f"Progress: {raw}.")
    if not outcome.jobs:
        return ["No job has been submitted by the end of the simulation.", *read]
    return [
        *read,
        *_latest(setting, outcome),
        *_longest_wait(setting, outcome),
        *_unfair(setting, outcome),
        *_idlest(setting, outcome),
    ]


def _latest(setting: Setting, outcome: SimulationOutcome) -> Iterator[str]:
    """Yield where the time of the job went that ends last."""
    ended = [record for record in outcome.jobs if record.finish_us is not None]
    left = len(outcome.jobs) - len(ended)
    if left:
        why = f", as {outcome.hindrance}" if outcome.hindrance else ""
        yield f"Not ended: {left} of {counted(len(outcome.jobs), 'job')}{printable(why)}."
    if not ended:
        return
    record = max(ended, key=lambda job: job.finish_us or 0)
    times = times_of(setting, outcome)[outcome.jobs.index(record)]
    total = times.waiting_us + times.running_us
    why = f"it waited {duration(times.queued_us)} for its first start, held GPUs for {duration(times.running_us)}"
    if times.paused_us:
        why += f" and none for {duration(times.paused_us)} between"
    alone = f"all its work alone takes {duration(record.alone_us)}"
    yield (
        f"Latest: {_job(setting, record)}, {duration(record.finish_us or 0)} after the beginning and {duration(total)}"
        f" after its submission, because {why}; {alone}."
    )


def _longest_wait(setting: Setting, outcome: SimulationOutcome) -> Iterator[str]:
    times = times_of(setting, outcome)
    k = max(range(len(times)), key=lambda k: times[k].waiting_us)
    if times[k].waiting_us:
        share = sum(time.waiting_us > 0 for time in times) / len(times)
        yield (
            f"Longest wait: {_job(setting, outcome.jobs[k])}, {duration(times[k].waiting_us)} without GPUs;"
            f" {100 * share:.3g} % of the jobs wait at all."
        )


def _unfair(setting: Setting, outcome: SimulationOutcome) -> Iterator[str]:
    ratios = {record.index: fairness(setting, record) for record in outcome.jobs if record.finish_us is not None}
    worst = max(outcome.jobs, key=lambda record: ratios.get(record.index, 0.0))
    if ratios.get(worst.index, 0.0) > 1:
        yield f"Most unfair: {_job(setting, worst)}, {ratios[worst.index]:.3g} times as long as on a fair share."


def _idlest(setting: Setting, outcome: SimulationOutcome) -> Iterator[str]:
    """Yield the server with the greatest share of its GPU time up and held by nobody, from the first submission on."""
    begin_us = setting.workload.jobs[0].submit_us
    span_us = outcome.end_us - begin_us
    if span_us <= 0:
        return
    held = [sum((end - start) * gpus for start, end, gpus in uses) for uses in server_uses(setting, outcome)]
    idle = [1 - used / (server.gpus * span_us) for used, server in zip(held, setting.cluster.servers, strict=True)]
    for server, down_us, up_us in server_outages(setting.failures, setting.cluster, outcome.end_us):
        idle[server] -= max(0, up_us - max(begin_us, down_us)) / span_us
    k = max(range(len(idle)), key=idle.__getitem__)
    if len(idle) > 1 and idle[k] > min(idle):
        mean = sum(gpus * server.gpus for gpus, server in zip(idle, setting.cluster.servers, strict=True))
        mean /= setting.gpu_count
        name = called("server", printable(setting.cluster.servers[k].name))
        yield (f"Idles most: {name}, {100 * idle[k]:.3g} % of its GPU time; that of all servers is {100 * mean:.3g} %.")


def _job(setting: Setting, record: JobRecord) -> str:
    return called("job", printable(setting.workload.jobs[record.index].name))


def waits(setting: Setting, outcome: SimulationOutcome, most: int) -> Sequence[tuple[JobRecord, JobTime]]:
    """Return the jobs that wait longest, the longest first."""
    pairs = zip(outcome.jobs, times_of(setting, outcome), strict=True)
    return sorted((pair for pair in pairs if pair[1].waiting_us), key=lambda pair: -pair[1].waiting_us)[:most]


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
    times = times_of(setting, outcome)
    ended = (record for record in outcome.jobs if record.finish_us is not None)
    return {
        "title": printable(title),
        "workload": printable(setting.workload.name),
        "gpus": setting.gpu_count,
        "end": outcome.end_us,
        "summary": [
            (
                with_efficiency(MEASURES[name].name, setting.efficiency, outcome.raw_models, name),
                *MEASURES[name][1:],
                value,
            )
            for name, value in asdict(summary).items()
        ],
        "completion": sorted(completion_us(setting, record) / _HOUR_US for record in ended),
        "charts": _charts(setting, outcome),
        "models": [{"name": printable(model), "colour": job_colour(k)} for k, model in enumerate(models)],
        "jobs": [
            [
                *(printable(job.name), number[_model_name(job)], job.submit_us, record.finish_us, record.restarts),
                *(spent.queued_us, spent.running_us, spent.paused_us),
            ]
            for record, spent in zip(outcome.jobs, times, strict=True)
            for job in (jobs[record.index],)
        ],
        "findings": findings(setting, outcome),
        "waits": [record.index for record, _ in waits(setting, outcome, _WAITS)],
        "servers": _servers(setting, outcome),
        "stints": [[stint.job, stint.start_us, stint.end_us, stint.gpus, list(stint.on)] for stint in outcome.stints],
        "names": list(map(printable, setting.cluster.gpus.names)),
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
