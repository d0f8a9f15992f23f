"""Levels, order and starts of some jobs chosen anew by CP-SAT, while the rest of the plan and all GPUs stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jigsaw_opt.formulations import cpsat_retiming
from jigsaw_opt.formulations.cpsat.size import readiness_of
from jigsaw_opt.problem.compiled.critical import least_iteration_us, usable_gpus
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.solvers.engines.magnitude import engine_holds
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.solve_state import SolveState

_MOST_READINESS = 500_000
"""Conditions of readiness above which no model is built: building it alone would take longer than it may be solved."""


class RepairModel:
    """Improves a plan around some of its jobs."""

    def __init__(self, solve_state: SolveState, data: ProblemData, engine: Engine) -> None:
        self.solve_state, self.data, self.engine = solve_state, data, engine

    def improve(self, plan: Timetable, jobs: Sequence[int], work: float) -> Timetable | None:
        """Return a better plan of a finite horizon in which only some jobs differ, or None where none was found."""
        frame = self._weighted_frame(plan, jobs) if self._weighted else self._latest_frame(plan, jobs)
        return None if frame.limit < frame.bound else self._solve(plan, jobs, frame, work)

    def at_period(self, plan: Timetable, jobs: Sequence[int], period: int, work: float) -> Timetable | None:
        """Return a plan of a given period in which only some jobs differ, or None where none was found."""
        return self._solve(plan, jobs, cpsat_retiming.Frame(period), work)

    @property
    def _weighted(self) -> bool:
        return self.data.operations.objective == "weighted_completion"

    def _latest_frame(self, plan: Timetable, jobs: Sequence[int]) -> cpsat_retiming.Frame:
        chosen = set(jobs)
        stays = max((job.end_us for index, job in enumerate(plan.jobs) if index not in chosen), default=0)
        latest = max(plan.jobs[index].end_us for index in jobs)
        return cpsat_retiming.Frame(None, False, max(stays, self.solve_state.bound), latest - 1)

    def _weighted_frame(self, plan: Timetable, jobs: Sequence[int]) -> cpsat_retiming.Frame:
        weights = self.data.operations.jobs
        now = sum(weights[index].weight * plan.jobs[index].end_us for index in jobs)
        return cpsat_retiming.Frame(None, True, sum(self._least(index) for index in jobs), now - 1)

    def _least(self, index: int) -> int:
        """Return the weighted least end of a job."""
        operations = self.data.operations
        job = operations.jobs[index]
        return job.weight * (
            job.release_us + job.iterations * least_iteration_us(operations, job, usable_gpus(operations, job))
        )

    def _deadline(self, index: int, frame: cpsat_retiming.Frame) -> int:
        if frame.period is not None:
            return frame.period
        job, latest = self.data.operations.jobs[index], frame.limit
        if frame.weighted:
            latest = (frame.limit - frame.bound + self._least(index)) // job.weight
        return latest if job.deadline_us is None else min(latest, job.deadline_us)

    def _solve(
        self, plan: Timetable, jobs: Sequence[int], frame: cpsat_retiming.Frame, work: float
    ) -> Timetable | None:
        if not engine_holds(self.data.operations) or self._readiness(jobs) > _MOST_READINESS:
            return None
        tasks = self._tasks(plan, jobs, frame)
        gpus = {gpu for task in tasks for gpu in task.machines}
        links = {link for task in tasks for link in task.links}
        model = cpsat_retiming.build(tasks, frame, *self._busy(plan, jobs, frame.period, gpus, links))
        model.hint([_timing(plan.jobs[index]) for index in jobs])
        value = self.engine.solve(model.proto, work)
        return None if value is None else self._merged(plan, jobs, model.plan(value), frame.period)

    def _readiness(self, jobs: Sequence[int]) -> int:
        """Return the number of conditions that a bucket is ready at a worker of some level, a measure of the model."""
        chosen = (self.data.operations.jobs[index] for index in jobs)
        return sum(readiness_of(job, job.slots) for job in chosen)

    def _tasks(
        self, plan: Timetable, jobs: Sequence[int], frame: cpsat_retiming.Frame
    ) -> list[cpsat_retiming.RetimingTask]:
        data = self.data
        placed = [[data.number[name] for name in job.gpus] for job in plan.jobs]
        caps = data.caps(placed)
        tasks = []
        for index in jobs:
            job, gpus = data.operations.jobs[index], placed[index]
            tasks.append(
                cpsat_retiming.free_task(
                    job, gpus, data.tables(job, gpus), data.ring(job, gpus), caps[index], self._deadline(index, frame)
                )
            )
        return tasks

    def _busy(
        self, plan: Timetable, jobs: Sequence[int], period: int | None, gpus: set[int], links: set[int]
    ) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[tuple[int, int]]]]:
        """Return the busy intervals of all other jobs on some GPUs and links."""
        data, chosen = self.data, set(jobs)
        on_gpu: dict[int, list[tuple[int, int]]] = {gpu: [] for gpu in gpus}
        on_link: dict[int, list[tuple[int, int]]] = {link: [] for link in links}
        for index, job in enumerate(plan.jobs):
            if index in chosen:
                continue
            numbers = [data.number[name] for name in job.gpus]
            used = links.intersection(data.ring(data.operations.jobs[index], numbers).links)
            for iteration in job.iterations:
                for gpu, block in zip(numbers, iteration.blocks, strict=True):
                    if gpu in on_gpu:
                        on_gpu[gpu] += _parts(block.start_us, block.end_us, period)
                for link in used:
                    for transfer in iteration.transfers:
                        on_link[link] += _parts(transfer.start_us, transfer.end_us, period)
        return on_gpu, on_link

    def _merged(
        self, plan: Timetable, jobs: Sequence[int], timings: Iterable[cpsat_retiming.RetimedTiming], period: int | None
    ) -> Timetable:
        """Return the plan with the new timings; it is assembled anew as a whole."""
        data = self.data
        decisions = []
        fresh = dict(zip(jobs, timings, strict=True))
        for index, job in enumerate(plan.jobs):
            timing = fresh.get(index) or _timing(job)
            gpus = [data.layout.gpus[data.number[name]] for name in job.gpus]
            decisions.append(JobDecision(gpus, timing.levels, timing.blocks, timing.transfers))
        return Timetable(assemble(data.operations, decisions), period)


def _timing(job: JobPlan) -> cpsat_retiming.RetimedTiming:
    return cpsat_retiming.RetimedTiming(
        [*job.levels],
        [[block.start_us for block in iteration.blocks] for iteration in job.iterations],
        [[transfer.start_us for transfer in iteration.transfers] for iteration in job.iterations],
    )


def _parts(start: int, end: int, period: int | None) -> list[tuple[int, int]]:
    """Return an interval as it is, or the parts of it within one period."""
    if start == end:
        return []
    if period is None:
        return [(start, end)]
    offset = start % period
    last = offset + end - start
    return [(offset, last)] if last <= period else [(offset, period), (0, last - period)]
