"""Task-graph jobs as job shops of JSPLIB, where they are such problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import TaskGraphBlock, TaskGraphJob
from jigsaw_opt.text import counted, printable

__all__ = ["jsplib_text"]


def jsplib_text(instance: Instance) -> str:
    """Return an instance as a job shop of JSPLIB; machines are numbered as the slots.

    A job has an operation for each machine, as many readers want it; those it lacks come first and take no time.

    `instance`: one job of one iteration, whose edges are chains that visit each slot at most once.
    """
    job, problems = _job_of(instance)
    if job is None:
        raise InvalidInputError(problems)
    if job.release_us:
        problems.append(_unfit("$.jobs[0].release_us", "a job shop begins at 0"))
    machines = {slot.name: number for number, slot in enumerate(job.shape.slots)}
    rows = () if job.shape.transfers else _chains(job, problems)
    for row in rows:
        slots = [slot for block in row for slot in block.slots]
        if len(slots) != len(row) or len(set(slots)) < len(slots):
            told = f"the chain that begins with {printable(row[0].name)} visits a slot twice, or several slots at once"
            problems.append(_unfit("$.jobs[0].shape.edges", told))
    if problems:
        raise InvalidInputError(problems)
    lines = [" ".join(_pairs(row, machines)) for row in rows]
    return "\n".join((f"# {printable(instance.name)}", f"{len(rows)} {len(machines)}", *lines)) + "\n"


def _pairs(row: Sequence[TaskGraphBlock], machines: Mapping[str, int]) -> list[str]:
    """Return the machine and the time of each operation of a job, behind those that take no time."""
    visited = {block.slots[0] for block in row}
    absent = [f"{number} 0" for name, number in machines.items() if name not in visited]
    return absent + [f"{machines[block.slots[0]]} {_time(block)}" for block in row]


def _unfit(path: str, told: str) -> Problem:
    return Problem(path, told, code="does-not-fit")


def _time(block: TaskGraphBlock) -> int:
    """Return the duration of a block of an instance that has one type of GPU that matters."""
    (time,) = set(block.duration_us.values())
    return time


def _job_of(instance: Instance) -> tuple[TaskGraphJob | None, list[Problem]]:
    """Return the only job of an instance, None where there is no such job; and why it is no problem of machines."""
    problems: list[Problem] = []
    if instance.objective != "makespan":
        problems.append(_unfit("$.objective", f"is {instance.objective}, not makespan"))
    if len(instance.cluster.servers) != 1:
        problems.append(_unfit("$.cluster.servers", "are several, so that a slot may choose among them"))
    if instance.cluster.power_caps:
        problems.append(_unfit("$.cluster.power_caps", "machines have no power"))
    job = instance.jobs[0]
    if len(instance.jobs) != 1 or not isinstance(job, TaskGraphJob):
        told = f"has {counted(len(instance.jobs), 'job')}; one is needed, with a task graph"
        return None, [*problems, _unfit("$.jobs", told)]
    server = instance.cluster.servers[0]
    if job.iterations != 1:
        problems.append(_unfit("$.jobs[0].iterations", f"are {job.iterations}, not 1"))
    if job.deadline_us is not None:
        problems.append(_unfit("$.jobs[0].deadline_us", "machines have no deadline"))
    for key, there in (("transfers", job.shape.transfers), ("holds", job.shape.holds)):
        if there:
            problems.append(_unfit(f"$.jobs[0].shape.{key}", "machines have none"))
    if len(job.shape.slots) > server.gpus or any(slot.memory > server.gpu_memory for slot in job.shape.slots):
        problems.append(_unfit("$.jobs[0].shape.slots", "the server has too few GPUs or too little memory"))
    for number, block in enumerate(job.shape.blocks):
        if set(block.duration_us) != {server.gpu_type}:
            told = f"are not of the GPU type {printable(server.gpu_type)} alone"
            problems.append(_unfit(f"$.jobs[0].shape.blocks[{number}].duration_us", told))
    return job, problems


def _chains(job: TaskGraphJob, problems: list[Problem]) -> Sequence[Sequence[TaskGraphBlock]]:
    """Return the blocks in chains, in the order of their first blocks; note edges that make no chains."""
    blocks = {block.name: block for block in job.shape.blocks}
    edges = {(edge.before, edge.after) for edge in job.shape.edges if edge.lag == 0}
    after, before = dict(edges), {last: first for first, last in edges}
    if len(after) < len(edges) or len(before) < len(edges):
        problems.append(_unfit("$.jobs[0].shape.edges", "a block has several before or behind it"))
        return ()
    chains = []
    for name in blocks:
        if name not in before:
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append([blocks[each] for each in chain])
    return chains
