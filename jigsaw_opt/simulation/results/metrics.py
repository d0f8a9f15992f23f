"""What a simulation comes to, in the measures of the field. Each is defined in docs/simulation.md."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any, NamedTuple

from jigsaw_opt.scheduling.performance.protocol import RAW
from jigsaw_opt.simulation.engine.outages import down_gpu_us
from jigsaw_opt.simulation.engine.records import JobRecord, SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.text import agreeing, counted, printable

_HOUR_US = 3_600_000_000


class MeasureName(NamedTuple):
    """A measure as people read it; its unit is ``h``, ``ms``, ``share`` or nothing."""

    name: str
    unit: str
    meaning: str


def _told(name: str, unit: str, meaning: str) -> Any:
    """Return a field without a default, with what people read of it."""
    return field(metadata={"told": MeasureName(name, unit, meaning)})


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """The measures of a simulation; those of completion are over the jobs that ended, None where none did.

    `jobs, unfinished`: jobs submitted in all, and those of them that have not ended. `weighted_completion_h`: the mean
    with the jobs' weights. `mean_waiting_h, median_waiting_h, p99_waiting_h`: hours from submission to the first start,
    over the jobs that started. `longest_waiting_h, longest_waiting_gpus`: the longest that a job held no GPUs, between
    its runs too, and how many GPUs that job asks for. `makespan_h`: hours from the first submission to the end: the
    last of a job, or where the simulation was stopped. `gpu_hours, mean_gpu_hours`: GPU-hours held, in all and a job
    submitted. `utilisation`: GPU time held as a share of that of the cluster, from the first submission to the end.
    `cluster_efficiency`: work done, in GPU time that it takes alone at full depth, as a share of the cluster's; what an
    iteration below full depth counts for, the setting's `efficiency` says. `partial_depth_jobs`: jobs that ran below
    full depth at any time.
    `worst_fairness, unfair_share`: greatest finish-time fairness of a job, and the share of the jobs with more than 1.
    `restarts, mean_restarts`: starts of jobs on other GPUs or after a wait but their first ones, in all and a job
    submitted. `rounds`: how often the policy was asked. `median_policy_ms, p95_policy_ms`: CPU time of the policy in a
    round. `foreground_jobs`: jobs submitted that are in the foreground. `mean_foreground_slowdown,
    worst_foreground_slowdown`: mean and greatest `run_slowdown` of the foreground jobs that ended.
    `mean_foreground_completion_h, mean_background_completion_h`: hours from submission to end of either kind; None of
    background jobs where there is no foreground. `background_gpu_hours`: background work done, in the GPU-hours that it
    takes alone at full depth. `failure_stops`: how often failures stopped a job. `lost_gpu_hours`: GPU-hours that jobs
    held between their last checkpoint and a failure of a server. `down_gpu_hours, idle_gpu_hours, useful_gpu_hours`:
    GPU-hours down; up and held by nobody; and held and not lost. `availability`: GPU time up as a share of the
    cluster's.
    """

    jobs: int = _told("jobs", "", "submitted in all")
    unfinished: int = _told("jobs unfinished", "", "submitted and not ended")
    mean_completion_h: float | None = _told("completion, mean", "h", "from submission to end, over jobs that ended")
    median_completion_h: float | None = _told(
        "completion, median", "h", "half of the jobs that ended took at most this"
    )
    p95_completion_h: float | None = _told("completion, 95 %", "h", "95 % of the jobs that ended took at most this")
    p99_completion_h: float | None = _told("completion, 99 %", "h", "99 % of the jobs that ended took at most this")
    weighted_completion_h: float | None = _told("completion, weighted", "h", "the mean with the jobs' weights")
    mean_waiting_h: float | None = _told(
        "waiting, mean", "h", "from submission to the first start, over jobs that started"
    )
    median_waiting_h: float | None = _told("waiting, median", "h", "of jobs that started")
    p99_waiting_h: float | None = _told("waiting, 99 %", "h", "99 % of the jobs that started waited at most this")
    longest_waiting_h: float | None = _told(
        "waiting, longest", "h", "without GPUs, up to the end of the job or the simulation"
    )
    longest_waiting_gpus: int | None = _told("GPUs of who waits longest", "", "asked for by that job")
    makespan_h: float = _told("makespan", "h", "from the first submission to the end")
    gpu_hours: float = _told("GPU time held", "h", "over all GPUs and jobs")
    mean_gpu_hours: float = _told("GPU time a job", "h", "held, over all submitted jobs")
    utilisation: float = _told("utilisation", "share", "GPU time held of all that the cluster has until the end")
    cluster_efficiency: float = _told(
        "cluster efficiency", "share", "work done, in GPU time that it takes alone with whole backward passes, of all"
    )
    partial_depth_jobs: int = _told("jobs below full depth", "", "that ran below full depth at any time")
    worst_fairness: float | None = _told(
        "worst fairness", "", "greatest time of a job by that on a fair share of the cluster; above 1 is unfair"
    )
    unfair_share: float | None = _told("unfair jobs", "share", "that took longer than on a fair share of the cluster")
    restarts: int = _told(
        "restarts", "", "starts of jobs on other GPUs or after a wait; the first start of a job is none"
    )
    mean_restarts: float = _told("restarts a job", "", "restarts over all submitted jobs")
    rounds: int = _told("rounds", "", "how often the policy was asked")
    median_policy_ms: float | None = _told("policy, median", "ms", "CPU time of the policy in a round")
    p95_policy_ms: float | None = _told("policy, 95 %", "ms", "95 % of the rounds took at most this CPU time")
    foreground_jobs: int = _told("foreground jobs", "", "submitted in the foreground")
    mean_foreground_slowdown: float | None = _told("foreground slow-down, mean", "", "of foreground jobs that ended")
    worst_foreground_slowdown: float | None = _told("foreground slow-down, worst", "", "of foreground jobs that ended")
    mean_foreground_completion_h: float | None = _told("foreground completion", "h", "mean from submission to end")
    mean_background_completion_h: float | None = _told("background completion", "h", "mean from submission to end")
    background_gpu_hours: float | None = _told(
        "background work", "h", "in GPU time that it takes alone with whole backward passes"
    )
    failure_stops: int = _told("stops by failures", "", "how often failures stopped a job")
    lost_gpu_hours: float = _told("GPU time lost", "h", "held since the last checkpoint before a failure, or idle")
    down_gpu_hours: float = _told("GPU time down", "h", "of GPUs that had failed")
    idle_gpu_hours: float = _told("GPU time idle", "h", "up, and held by nobody")
    useful_gpu_hours: float = _told("GPU time useful", "h", "held and not lost")
    availability: float = _told("availability", "share", "GPU time up of all that the cluster has")


MEASURES: Mapping[str, MeasureName] = {one.name: one.metadata["told"] for one in fields(SimulationSummary)}
"""By the name of the field in `SimulationSummary`; each is defined in docs/simulation.md."""


def with_efficiency(name: str, efficiency: str, raw_models: Sequence[str], key: str = "") -> str:
    """Return what a measure is called, and for cluster efficiency what iterations counted for.

    `raw_models`: models counted raw. `key`: its field, where `name` is another word for it.
    """
    raw = f"; {counted(len(raw_models), 'model')} raw" if raw_models and efficiency != RAW else ""
    return f"{name} ({efficiency}{raw})" if (key or name) == "cluster_efficiency" else name


def raw_told(models: Sequence[str]) -> str:
    """Return a sentence on models whose iterations below full depth were counted as whole ones; empty for none."""
    if not models:
        return ""
    return (
        f"iterations below full depth of {agreeing(len(models), 'model', 'models')} {', '.join(map(printable, models))}"
        " count as whole ones, as no efficiency weighs them, so accuracy may fall unseen; see docs/training-loop.md"
    )


def summarise(setting: Setting, outcome: SimulationOutcome) -> SimulationSummary:
    """Return the measures of a simulation that was closed.

    `outcome`: its records, with at least one job.
    """
    jobs = setting.workload.jobs
    ended = [record for record in outcome.jobs if record.finish_us is not None]
    completions = [completion_us(setting, record) / _HOUR_US for record in ended]
    weights = [jobs[record.index].weight for record in ended]
    free = [record for record in outcome.jobs if jobs[record.index].held_by is None]
    waits = [(r.start_us - jobs[r.index].submit_us) / _HOUR_US for r in free if r.start_us is not None]
    held = outcome.held_us()
    ends = ((outcome.end_us if record.finish_us is None else record.finish_us, record.index) for record in free)
    idle = [(end_us - jobs[k].submit_us - held[k], jobs[k].gpus) for end_us, k in ends]
    longest_us, gpus = max(idle, default=(None, None))
    ratios = [fairness(setting, record) for record in ended]
    span_us = max(1, outcome.end_us - jobs[0].submit_us)
    capacity_us = setting.gpu_count * span_us
    held_us = sum(record.gpu_us for record in outcome.jobs)
    policy_ms = [record.policy_us / 1000 for record in outcome.rounds]
    restarts = sum(record.restarts for record in outcome.jobs)
    return SimulationSummary(
        jobs=len(outcome.jobs),
        unfinished=len(outcome.jobs) - len(ended),
        mean_completion_h=_mean(completions),
        median_completion_h=median(completions),
        p95_completion_h=quantile(completions, 0.95),
        p99_completion_h=quantile(completions, 0.99),
        weighted_completion_h=_mean([c * w for c, w in zip(completions, weights, strict=True)], sum(weights)),
        mean_waiting_h=_mean(waits),
        median_waiting_h=median(waits),
        p99_waiting_h=quantile(waits, 0.99),
        longest_waiting_h=None if longest_us is None else longest_us / _HOUR_US,
        longest_waiting_gpus=gpus,
        makespan_h=span_us / _HOUR_US,
        gpu_hours=held_us / _HOUR_US,
        mean_gpu_hours=held_us / _HOUR_US / max(1, len(outcome.jobs)),
        utilisation=held_us / capacity_us,
        cluster_efficiency=sum(_credit_us(setting, record) for record in outcome.jobs) / capacity_us,
        partial_depth_jobs=len(outcome.partial_jobs),
        worst_fairness=max(ratios, default=None),
        unfair_share=_mean([float(ratio > 1) for ratio in ratios]),
        restarts=restarts,
        mean_restarts=restarts / max(1, len(outcome.jobs)),
        rounds=len(outcome.rounds),
        median_policy_ms=median(policy_ms),
        p95_policy_ms=quantile(policy_ms, 0.95),
        **_by_kind(setting, outcome),
        **_by_failures(setting, outcome, capacity_us, held_us),
    )


def _by_kind(setting: Setting, outcome: SimulationOutcome) -> dict[str, Any]:
    """Return the measures of foreground and of background jobs; None where there is no foreground."""
    jobs = setting.workload.jobs
    front = [record for record in outcome.jobs if jobs[record.index].foreground]
    back = [record for record in outcome.jobs if front and not jobs[record.index].foreground]
    ended = [[record for record in records if record.finish_us is not None] for records in (front, back)]
    means = [_mean([completion_us(setting, record) / _HOUR_US for record in records]) for records in ended]
    slowdowns = [run_slowdown(setting, record) for record in ended[0]]
    return {
        "foreground_jobs": len(front),
        "mean_foreground_slowdown": _mean(slowdowns),
        "worst_foreground_slowdown": max(slowdowns, default=None),
        "mean_foreground_completion_h": means[0],
        "mean_background_completion_h": means[1],
        "background_gpu_hours": sum(_credit_us(setting, record) for record in back) / _HOUR_US if front else None,
    }


def _by_failures(setting: Setting, outcome: SimulationOutcome, capacity_us: int, held_us: int) -> dict[str, Any]:
    """Return where the GPU time went: useful, lost, idle and down add up to that of the cluster."""
    down_us = down_gpu_us(setting.failures, setting.cluster, setting.workload.jobs[0].submit_us, outcome.end_us)
    lost_us = sum(loss.gpu_us for loss in outcome.losses.values())
    return {
        "failure_stops": sum(loss.stops for loss in outcome.losses.values()),
        "lost_gpu_hours": lost_us / _HOUR_US,
        "down_gpu_hours": down_us / _HOUR_US,
        "idle_gpu_hours": (capacity_us - held_us - down_us) / _HOUR_US,
        "useful_gpu_hours": (held_us - lost_us) / _HOUR_US,
        "availability": 1 - down_us / capacity_us,
    }


def completion_us(setting: Setting, record: JobRecord) -> int:
    """Return the time from the submission of a job that ended to its end, in microseconds."""
    assert record.finish_us is not None
    return record.finish_us - setting.workload.jobs[record.index].submit_us


def fairness(setting: Setting, record: JobRecord) -> float:
    """Return the finish-time fairness of a job that ended: its completion time over its time on a fair share.

    With ``N`` active jobs in the mean of its life, the fair share is ``1/N`` of the GPUs; where that is less than it
    asks for it would take as much longer.
    """
    asked = setting.workload.jobs[record.index].gpus
    slower = max(1.0, record.crowd * asked / setting.gpu_count)
    return completion_us(setting, record) / max(1.0, record.alone_us * slower)


def run_slowdown(setting: Setting, record: JobRecord) -> float:
    """Return the slow-down of a job that ended: time from its first start to its end, over its time alone."""
    assert record.start_us is not None
    assert record.finish_us is not None
    start_us = setting.restart_of(setting.workload.jobs[record.index])
    return (record.finish_us - record.start_us - start_us) / max(1, record.alone_us)


def restarts_so_far(outcome: SimulationOutcome) -> list[int]:
    """Return the restarts up to each round: starts on other GPUs or after a wait, but the first start of each job."""
    first = Counter(record.start_us for record in outcome.jobs)
    return list(accumulate(record.moved - first.pop(record.time_us, 0) for record in outcome.rounds))


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return a percentile by nearest rank: the least value that a share of the values do not exceed; None of none.

    `share`: A share from 0 to 1.
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, of an even number the mean of the two in the middle; None of none."""
    return statistics.median(values) if values else None


def _credit_us(setting: Setting, record: JobRecord) -> float:
    """Return GPU time that the work done takes alone at full depth on the GPUs asked for."""
    return record.alone_us * (record.done / record.work) * setting.workload.jobs[record.index].gpus


def _mean(values: Sequence[float], count: int | None = None) -> float | None:
    return sum(values) / (len(values) if count is None else count) if values else None
