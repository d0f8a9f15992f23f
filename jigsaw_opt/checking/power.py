"""Rules for the watts that running blocks draw together under each power cap (specification: power)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.memory import most_at_once
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.plan import Block, Execution

_Draw = tuple[int, int, int, str]
"""Start, end and watts of a block on one GPU, and its path."""


def power(
    jobs: Sequence[CheckedJob | CheckedTaskGraphJob], cluster: Cluster, period_us: int | None
) -> Iterator[Violation]:
    """Report every cap that is exceeded, with the first moment at which most is drawn (specification: power)."""
    for cap in cluster.capacities:
        types = {k: server.gpu_type for k, server in enumerate(cluster.servers) if server.name in cap.servers}
        draws = [draw for job in jobs for draw in _draws(job, types) if draw[0] < draw[1] and draw[2]]
        most, moment = most_at_once((draw[:3] for draw in draws), period_us)
        if most > cap.watts:
            running = (path for start, end, _, path in draws if _runs(start, end, moment, period_us))
            when = f"{moment}" if period_us is None else f"{moment}, modulo {period_us}"
            message = f"the blocks under power cap {cap.name!r} draw {most} W at {when}, but it allows {cap.watts} W"
            # Something runs at this moment, as more than 0 W are drawn.
            yield Violation("power", next(running), message)


def caps_of(job: CheckedJob | CheckedTaskGraphJob, cluster: Cluster) -> list[str]:
    """Return the names of the caps that have servers with GPUs of a job."""
    used = {cluster.servers[server].name for server in job.servers if server is not None}
    return [cap.name for cap in cluster.capacities if not used.isdisjoint(cap.servers)]


def _runs(start: int, end: int, moment: int, period_us: int | None) -> bool:
    """Return whether a block runs at a moment, counted modulo the period of a cyclic plan."""
    return start <= moment < end if period_us is None else (moment - start) % period_us < end - start


def _draws(job: CheckedJob | CheckedTaskGraphJob, types: Mapping[int, str]) -> Iterator[_Draw]:
    """Yield what blocks of a job draw on GPUs of some servers, given the type of each by its number."""
    gpu_types = [None if server is None else types.get(server) for server in job.servers]
    for path, iteration in job.iterations():
        blocks: Sequence[Block | Execution] = iteration.blocks
        for index, (block, (slots, watts)) in enumerate(zip(blocks, _drawing(job), strict=False)):
            for gpu_type in (gpu_types[slot] for slot in slots if slot < len(gpu_types)):
                if gpu_type is not None:
                    yield block.start_us, block.end_us, watts.get(gpu_type, 0), f"{path}.blocks[{index}]"


def _drawing(job: CheckedJob | CheckedTaskGraphJob) -> Iterator[tuple[Sequence[int], Mapping[str, int]]]:
    """Yield by block of an iteration the workers or slots that run it, by number, and its watts by GPU type."""
    if isinstance(job, CheckedJob):
        yield from (((worker,), job.terms.power_w) for worker in range(job.job.workers))
    else:
        number = {slot.name: k for k, slot in enumerate(job.shape.slots)}
        for block in job.shape.blocks:
            yield [number[slot] for slot in block.slots], block.power_w or {}
