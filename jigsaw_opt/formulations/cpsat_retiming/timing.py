"""Waits of operations, and GPUs and links that each serve one at a time (specification: exclusive)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_retiming.variables import Frame, TaskVariables
from jigsaw_opt.formulations.disjoint import LINKS, Busy, User, add_no_overlaps, operation_intervals
from jigsaw_opt.problem.compiled.critical import fewest_contributors

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.disjoint import Expression


def add_job(model: cp_model.CpModel, job_vars: TaskVariables, frame: Frame) -> None:
    """Add all iterations of a job, whose barrier may wrap (specification: readiness, order, barrier, period).

    `job_vars`: variables of the job; starts, ends and sizes are filled in, by iteration. `frame`: horizon, and bounds
    of the objective; its period is None on the finite horizon.
    """
    task, period = job_vars.task, frame.period
    # The first iteration begins in the first period, and the wrapped barrier ends the last one at most a period later.
    latest = task.deadline if period is None else 2 * period
    offset = None if period is None else model.new_int_var(0, period - 1, "")
    for i in range(task.job.iterations):
        job_vars.starts.append([model.new_int_var(task.job.release_us, latest, "") for _ in task.gpus])
        job_vars.ends.append(model.new_int_var(task.job.release_us, latest, ""))
        barrier = offset if i == 0 else job_vars.ends[i - 1]
        for start in job_vars.starts[i] if barrier is not None else ():
            model.add(start >= barrier)
        job_vars.sizes.append([_size(model, job_vars, i, slot) for slot in range(len(task.gpus))])
        for start, size in zip(job_vars.starts[i], job_vars.sizes[i], strict=True):
            model.add(job_vars.ends[i] >= start + size)
        _add_transfers(model, job_vars, i, latest)
    if offset is not None:
        model.add(job_vars.ends[-1] <= offset + task.deadline)


def _size(model: cp_model.CpModel, job_vars: TaskVariables, i: int, slot: int) -> Expression:
    """Return the duration of a block at the level that is chosen for it."""
    table, literals = job_vars.task.tables[slot], job_vars.levels[i][slot]
    if len(literals) == 1:
        return table[next(iter(literals)) - 1]
    times = [table[d - 1] for d in literals]
    size = model.new_int_var(min(times), max(times), "")
    model.add(size == sum(table[d - 1] * literal for d, literal in literals.items()))
    return size


def _add_transfers(model: cp_model.CpModel, job_vars: TaskVariables, i: int, latest: int) -> None:
    job = job_vars.task.job
    job_vars.moves.append([model.new_int_var(job.release_us, latest, "") for _ in job.transfers])
    job_vars.durations.append([_duration(model, job_vars, i, operation.bucket) for operation in job.transfers])
    for b, (start, duration) in enumerate(zip(job_vars.moves[i], job_vars.durations[i], strict=True), 1):
        # Buckets count from 1 and transfers from 0, so `b` is the transfer behind this one.
        following = job_vars.moves[i][b] if b < len(job.transfers) else job_vars.ends[i]
        model.add(following >= start + duration)
        for slot, block in enumerate(job_vars.starts[i]):
            _add_readiness(model, job_vars.levels[i][slot], b, start, block + job_vars.task.tables[slot][b - 1])


def _add_readiness(
    model: cp_model.CpModel,
    literals: dict[int, cp_model.IntVar],
    bucket: int,
    start: cp_model.IntVar,
    ready: Expression,
) -> None:
    """Let a transfer start when its bucket is ready at a slot, if that slot's level reaches it."""
    if bucket <= min(literals):
        model.add(start >= ready)
        return
    for literal in (literal for d, literal in literals.items() if d >= bucket):
        model.add(start >= ready).only_enforce_if(literal)


def _duration(model: cp_model.CpModel, job_vars: TaskVariables, i: int, bucket: int) -> Expression:
    """Return the duration of a transfer; under a free rule by the number of its contributors."""
    job, channel = job_vars.task.job, job_vars.task.channel
    fewest = fewest_contributors(job, bucket)
    if job.rule.multiset is not None or fewest == job.slots:
        return job.transfer_us(bucket, fewest, channel)
    times = [job.transfer_us(bucket, count, channel) for count in range(1, job.slots + 1)]
    if len(set(times)) == 1:
        # A constant, so that one of length 0 is known to take no link.
        return times[0]
    count = model.new_int_var(1, job.slots, "")
    model.add(count == sum(literal for row in job_vars.levels[i] for d, literal in row.items() if d >= bucket))
    duration = model.new_int_var(min(times), max(times), "")
    model.add_element(count - 1, times, duration)
    return duration


_MOST_TURNS = 2
"""An operation starts less than two periods after 0, or at their end where it takes no time."""


def add_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskVariables], frame: Frame, busy_gpus: Busy, busy_links: Busy
) -> None:
    """Require that blocks and transfers overlap neither each other nor what is fixed (specification: exclusive)."""
    users: dict[tuple[str, int], list[User]] = {}
    for j, job_vars in enumerate(jobs):
        for slot, gpu in enumerate(job_vars.task.gpus):
            users.setdefault(("gpu", gpu), []).append((j, slot))
        for link in job_vars.task.channel.links:
            users.setdefault(("link", link), []).append((j, LINKS))

    def intervals(user: User) -> list[cp_model.IntervalVar]:
        """Return the intervals of a job's slot, or of its transfers."""
        job_vars, slot = jobs[user[0]], user[1]
        if slot == LINKS:
            operations = [
                pair for row, sizes in zip(job_vars.moves, job_vars.durations, strict=True) for pair in zip(row, sizes)
            ]
        else:
            operations = [(row[slot], sizes[slot]) for row, sizes in zip(job_vars.starts, job_vars.sizes, strict=True)]
        return [
            interval
            for start, size in operations
            # An operation of no length is in nobody's way, but its interval could not lie within another one.
            if not (isinstance(size, int) and size == 0)
            for interval in operation_intervals(model, start, size, frame.period, _MOST_TURNS)
        ]

    add_no_overlaps(model, users, {"gpu": busy_gpus, "link": busy_links}, intervals, frame.period)
