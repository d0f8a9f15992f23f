"""Job shops of JSPLIB: reading them as instances, and writing task-graph jobs that are such problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.errors import InvalidInputError, Problem, wrong_input
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.text import Tell, counted, printable, say_nothing

_TYPE = "machine"
_LONGEST_US = 10**12
"""Longest operation, in microseconds: sums over all lines of a file stay below 2^53."""
_WORD = re.compile(r"-?[0-9]{1,15}")
_NAMED = re.compile(r"# ?(\w[\w./+-]{0,99})\s*$")
Row = tuple[int, Sequence[int]]


def jsplib_text(instance: Instance, tell: Tell = say_nothing) -> str:
    """Return an instance as a job shop of JSPLIB; machines are numbered as the slots.

    A job has an operation for each machine, as many readers want it; those it lacks come first and take no time.

    `instance`: one job of one iteration, whose edges are chains. `tell`: called with how many jobs visit a machine more
    than once.
    """
    job, problems = _job_of(instance)
    if job is None:
        raise InvalidInputError(problems)
    if job.release_us:
        problems.append(_unfit("$.jobs[0].release_us", "a job shop begins at 0"))
    machines = {slot.name: number for number, slot in enumerate(job.shape.slots)}
    rows = () if job.shape.transfers else _chains(job, problems)
    for row in rows:
        if any(len(block.slots) > 1 for block in row):
            told = f"the chain that begins with {printable(row[0].name)} is on several slots at once"
            problems.append(_unfit("$.jobs[0].shape.blocks", told))
    if problems:
        raise InvalidInputError(problems)
    _tell_returns(((block.slots[0] for block in row) for row in rows), tell)
    lines = [" ".join(_pairs(row, machines)) for row in rows]
    return "\n".join((f"# {printable(instance.name)}", f"{len(rows)} {len(machines)}", *lines)) + "\n"


def _pairs(row: Sequence[TaskGraphBlock], machines: Mapping[str, int]) -> list[str]:
    """Return the machine and the time of each operation of a job, behind those that take no time."""
    visited = {block.slots[0] for block in row}
    absent = [f"{number} 0" for name, number in machines.items() if name not in visited]
    # An instance that has one type of GPU has one duration of a block.
    return absent + [f"{machines[block.slots[0]]} {min(block.duration_us.values())}" for block in row]


def _tell_returns(visited: Iterable[Iterable[object]], tell: Tell, source: str = "") -> None:
    """Tell how many jobs visit a machine more than once, which the job shops of the literature do not."""
    if returning := sum(max(Counter(row).values(), default=0) > 1 for row in visited):
        tell(f"{source}jobs that visit a machine more than once: {returning}")


def _unfit(path: str, told: str) -> Problem:
    return Problem(path, told, code="does-not-fit")


def _job_of(instance: Instance) -> tuple[TaskGraphJob | None, list[Problem]]:
    """Return the only job of an instance, None where there is no such job; and why it is no problem of machines."""
    problems: list[Problem] = []
    if instance.objective != "makespan":
        problems.append(_unfit("$.objective", f"is {instance.objective}, not makespan"))
    if len(instance.cluster.servers) != 1:
        problems.append(_unfit("$.cluster.servers", "are several, so that a slot may choose among them"))
    for key in dict(instance.cluster.limits):
        problems.append(_unfit(f"$.cluster.{key}", "machines have none"))
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


def read_jsplib(data: bytes | str, source: str, name: str | None = None, tell: Tell = say_nothing) -> Instance:
    """Read a job shop of JSPLIB.

    `data`: the content of the file; text, or bytes in UTF-8. `name`: name of the instance; by default the one word of a
    comment in the first line, as `jsplib_text` writes it, else that of the file without its endings. `tell`: called
    with what is left out, and with how many jobs visit some of the machines only, or one of them more than once.
    """
    lines = Lines(data, source)
    if name is None and (comment := _NAMED.match(next((line for _, line in lines), ""))):
        name = comment[1]
    machines, rows = _headed(lines)
    jobs: list[list[tuple[int, int]]] = []
    for number, row in rows:
        if len(row) % 2:
            lines.add(number, f"has {len(row)} numbers, not a pair for each operation", code="wrong-count")
            continue
        pairs = list(zip(row[::2], row[1::2], strict=True))
        for machine, time in pairs:
            if not 0 <= machine < machines:
                lines.add(number, f"names a machine that is none of {machines}", code="out-of-range")
            if not 0 <= time <= _LONGEST_US:
                lines.add(number, f"has a duration of {time}; it is from 0 to 10^12", code="out-of-range")
        jobs.append(pairs)
    if shorter := sum(len(job) < machines for job in jobs):
        tell(f"{source}: jobs with fewer operations than the {counted(machines, 'machine')}: {shorter}")
    lines.raise_if_any()
    _tell_returns(([machine for machine, time in job if time] for job in jobs), tell, f"{source}: ")
    return _instance(name or PurePath(source).name.split(".")[0], jobs, source, tell)


def _headed(lines: Lines) -> tuple[int, list[Row]]:
    """Return the number of machines, and the lines of all jobs, of which there are as many as the first line says."""
    rows: list[Row] = []
    head: list[int] = []
    wrong = 0
    for number, line in lines:
        if line.lstrip().startswith("#"):
            continue
        row = _numbers_of(lines, number, line)
        if not head:
            if row is None or len(row) != 2 or min(row) < 1:
                lines.add(number, "starts with numbers of jobs and machines, each at least 1", code="malformed")
                lines.raise_if_any()
            assert row is not None
            head = row
        elif row is None:
            wrong += 1
        else:
            rows.append((number, row))
    if not head:
        lines.add(None, "has no line with numbers of jobs and machines", code="empty")
        lines.raise_if_any()
    if len(rows) + wrong != head[0]:
        told = f"has lines of {counted(len(rows) + wrong, 'job')}, and says that there are {head[0]}"
        lines.add(None, told, code="wrong-count")
    return head[1], rows


def _numbers_of(lines: Lines, number: int, line: str) -> list[int] | None:
    """Return the whole numbers of a line; None, with a problem, where it holds something else."""
    words = line.split()
    wrong = next((word for word in words if not _WORD.fullmatch(word)), None)
    if wrong is None:
        return [int(word) for word in words]
    lines.add(number, f"holds {wrong[:40]!r} where a whole number stands", code="malformed")
    return None


def _instance(name: str, jobs: Sequence[Sequence[tuple[int, int]]], source: str, tell: Tell) -> Instance:
    """Return the instance whose only job has a slot for each machine and a chain of blocks for each row."""
    blocks, edges, left_out = list[TaskGraphBlock](), list[Edge](), 0
    for job, row in enumerate(jobs):
        chain = [
            TaskGraphBlock(f"{job}.{place}", (f"m{machine}",), {_TYPE: time})
            for place, (machine, time) in enumerate(row)
            if time
        ]
        blocks += chain
        edges += [Edge(before.name, after.name) for before, after in pairwise(chain)]
        left_out += len(row) - len(chain)
    if left_out:
        tell(f"{source}: left out: {counted(left_out, 'operation')} without a duration, which need no machine")
    if not blocks:
        raise wrong_input(source, "has no operation with a duration", code="empty")
    slots = sorted({block.slots[0] for block in blocks})
    graph = TaskGraph(tuple(map(Slot, slots)), tuple(blocks), (), tuple(edges))
    cluster = Cluster((Server("shop", _TYPE, len(slots), 1, 1),))
    return Instance(name, cluster, {}, (TaskGraphJob(name, graph, 1),))
