"""What stands out in a simulation, in sentences: only what its records say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jigsaw_opt.simulation.metrics import fairness
from jigsaw_opt.simulation.outages import server_outages
from jigsaw_opt.simulation.records import JobRecord, SimulationOutcome
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.text import called, counted, duration, printable

__all__ = ["JobTimes", "findings", "job_times", "server_uses", "waits"]


class JobTimes(NamedTuple):
    """The time of a job, in microseconds, from its submission to its end or that of the simulation, by what it did.

    `paused`: in which it held none after its first start.
    """

    waited: int
    held: int
    paused: int

    @property
    def waiting(self) -> int:
        """All time without GPUs."""
        return self.waited + self.paused


def job_times(setting: Setting, outcome: SimulationOutcome) -> list[JobTimes]:
    """Return the times of each job, in the order of the records and in microseconds."""
    held = outcome.held_us()
    return [_times(setting, record, held[record.index], outcome.end_us) for record in outcome.jobs]


def _times(setting: Setting, record: JobRecord, held: int, end_us: int) -> JobTimes:
    end = end_us if record.finish_us is None else record.finish_us
    start = end if record.start_us is None else record.start_us
    return JobTimes(start - setting.workload.jobs[record.index].submit_us, held, end - start - held)


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
    times = job_times(setting, outcome)[outcome.jobs.index(record)]
    total = times.waiting + times.held
    why = f"it waited {duration(times.waited)} for its first start, held GPUs for {duration(times.held)}"
    if times.paused:
        why += f" and none for {duration(times.paused)} between"
    alone = f"all its work alone takes {duration(record.alone_us)}"
    yield (
        f"Latest: {_job(setting, record)}, {duration(record.finish_us or 0)} after the beginning and {duration(total)}"
        f" after its submission, because {why}; {alone}."
    )


def _longest_wait(setting: Setting, outcome: SimulationOutcome) -> Iterator[str]:
    times = job_times(setting, outcome)
    k = max(range(len(times)), key=lambda k: times[k].waiting)
    if times[k].waiting:
        share = sum(time.waiting > 0 for time in times) / len(times)
        yield (
            f"Longest wait: {_job(setting, outcome.jobs[k])}, {duration(times[k].waiting)} without GPUs;"
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


def waits(setting: Setting, outcome: SimulationOutcome, most: int) -> Sequence[tuple[JobRecord, JobTimes]]:
    """Return the jobs that wait longest, the longest first."""
    pairs = zip(outcome.jobs, job_times(setting, outcome), strict=True)
    return sorted((pair for pair in pairs if pair[1].waiting), key=lambda pair: -pair[1].waiting)[:most]
