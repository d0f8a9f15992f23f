"""The record of a trace in the place of a simulation: when each job really started and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate

from jigsaw_opt.errors import InvalidInputError, Problem, unsupported
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policies import RECORDED
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.simulation.engine.event_log import EventLog, JobStatistics
from jigsaw_opt.simulation.engine.records import SimulationOutcome, Stint
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.text import counted


def simulation_of(setting: Setting) -> Simulation:
    """Return a simulation of a setting at its beginning, or the record of its trace under the policy ``recorded``."""
    return _RecordOfTrace(setting) if setting.policy == RECORDED else Simulation(setting)


def why_no_record(workload: Workload) -> str | None:
    """Return why a workload does not tell what happened to its jobs, or None where it does."""
    jobs = workload.jobs
    lacking = [job.name for job in jobs if job.start_us is None or job.end_us is None]
    if lacking:
        return f"the trace lacks the start or end of {counted(len(lacking), 'job')}, {lacking[0]!r} for one"
    return next((problem for job in jobs for problem in record_problems(job)), None)


def record_problems(job: TraceJob) -> Iterator[str]:
    """Yield what cannot be of the times that are recorded of a job."""
    if job.start_us is not None and job.start_us < job.submit_us:
        yield f"job {job.name!r} started before its submission"
    if job.start_us is not None and job.end_us is not None and job.end_us < job.start_us:
        yield f"job {job.name!r} ended before its start"


def most_gpus(workload: Workload) -> int:
    """Return the most GPUs that jobs held at a time by the record."""
    changes = [(job.start_us or 0, job.gpus) for job in workload.jobs]
    changes += [(job.end_us or 0, -job.gpus) for job in workload.jobs]
    return max(accumulate((gpus for _, gpus in sorted(changes)), initial=0))


class _RecordOfTrace(Simulation):
    """A simulation that has nothing to decide: what a trace says happened.

    A job holds the GPUs that it asks for from its start to its end. On which servers they are the trace does not say.
    """

    def __init__(self, setting: Setting) -> None:
        # What a start costs is part of the recorded times.
        self.setting = replace(setting, restart_us=0)
        self.now_us = 0
        wrong = [(k, problem) for k, job in enumerate(setting.workload.jobs) for problem in record_problems(job)]
        if wrong:
            raise InvalidInputError(Problem(f"$.jobs[{k}]", problem, code="contradiction") for k, problem in wrong)
        if (reason := why_no_record(setting.workload)) is not None:
            raise unsupported("policy", f"policy 'recorded' has nothing to tell: {reason}")

    @property
    def ended(self) -> int:
        return sum((job.end_us or 0) <= self.now_us for job in self.setting.workload.jobs)

    @property
    def resumable(self) -> bool:
        return False

    def state(self) -> Plain:
        raise unsupported("policy", "a record cannot be put aside")

    def run(self, stop: Callable[[], bool] = lambda: False, until_us: int | None = None) -> None:
        last_us = max(job.end_us or 0 for job in self.setting.workload.jobs)
        self.now_us = last_us if until_us is None else min(last_us, until_us)

    def close(self) -> SimulationOutcome:
        jobs, now_us = self.setting.workload.jobs, self.now_us
        log, before = EventLog(SimulationOutcome(now_us)), dict[int, int]()
        events = [(job.submit_us, 0, k) for k, job in enumerate(jobs) if job.submit_us <= now_us]
        events += [(min(now_us, job.end_us or 0), 1, k) for k, job in enumerate(jobs) if job.submit_us <= now_us]
        for time_us, is_end, k in sorted(events):
            if is_end:
                self._note(log, k, before[k], time_us)
            else:
                before[k] = log.crowd.at(time_us)
            log.crowd.set(log.crowd.value + (-1 if is_end else 1), time_us)
        log.outcome.jobs.sort(key=lambda record: record.index)
        log.outcome.stints.sort(key=lambda stint: stint.end_us)
        return log.outcome

    def _note(self, log: EventLog, index: int, crowd_before: int, time_us: int) -> None:
        """Note where a job stands at the end of the record, or of its life before."""
        job, performance = self.setting.workload.jobs[index], self.setting.performance
        start_us, end_us = job.start_us or 0, job.end_us or 0
        held_us = max(0, min(end_us, self.now_us) - start_us)
        finish_us = end_us if end_us <= self.now_us else None
        work = performance.work(job)
        done = work if finish_us is not None else work * held_us // max(1, end_us - start_us)
        statistics = JobStatistics(crowd_before, start_us if start_us <= self.now_us else None)
        active = JobState(index, job, work, done, held_us * job.gpus)
        log.job(active, statistics, performance.alone_us(job), time_us, finish_us)
        if held_us:
            log.outcome.stints.append(Stint(index, job.gpus, start_us, start_us + held_us))
