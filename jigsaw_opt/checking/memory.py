"""The memory that workers and slots need on their GPUs (specification: memory, holds)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

__all__ = ["memory", "most_at_once"]

_Hold = tuple[int, int, int]
"""Start, end and bytes."""


def memory(
    jobs: Sequence[CheckedJob | CheckedTaskGraphJob], cluster: Cluster, period_us: int | None
) -> Iterator[Violation]:
    """Check what is on a GPU all the time, and the most of what is held there at one moment, against its memory.

    Parameters
    ----------
    jobs
        Jobs of the plan beside those of the instance.
    cluster
        The cluster of the instance.
    period_us
        The period in microseconds; None on the finite horizon.

    Notes
    -----
    Specification: memory, holds.
    """
    steady: defaultdict[str, int] = defaultdict(int)
    activations: defaultdict[str, int] = defaultdict(int)
    held: defaultdict[str, list[_Hold]] = defaultdict(list)
    last: dict[str, tuple[str, int]] = {}
    for job in jobs:
        for number, (gpu, server) in enumerate(zip(job.plan.gpus, job.servers, strict=True)):
            if server is None:
                continue
            last[gpu] = (f"{job.path}.gpus[{number}]", server)
            if isinstance(job, CheckedJob):
                steady[gpu] += job.terms.state_bytes
                # Blocks on a GPU never overlap, so that activations of different workers are not there at once.
                activations[gpu] = max(activations[gpu], _activation_bytes(job, number))
            elif number < len(job.shape.slots):
                steady[gpu] += job.shape.slots[number].memory
        for gpu, *hold in job.held() if isinstance(job, CheckedTaskGraphJob) else ():
            held[gpu].append((hold[0], hold[1], hold[2]))
    for gpu, (path, server) in last.items():
        most, moment = most_at_once(held[gpu], period_us)
        need, limit = steady[gpu] + activations[gpu] + most, cluster.servers[server].gpu_memory
        if need > limit:
            when = f" at {moment}" if most else ""
            yield Violation("memory", path, f"the jobs on GPU {gpu} need {need} bytes{when}, but it has {limit}")


def most_at_once(holds: Iterable[_Hold], period_us: int | None) -> tuple[int, int]:
    """Return the most bytes held at once and the first moment with so many, modulo the period of a cyclic plan.

    So it does of any other amounts that are taken from a start up to an end.

    Parameters
    ----------
    holds
        Start, end and amount of each; times in microseconds.
    period_us
        The period in microseconds; None on the finite horizon.
    """
    change: Counter[int] = Counter()
    for start, end, size in holds:
        if period_us is None:
            # An interval does not contain its end: at one moment, what ends makes room for what begins.
            change[start] += size
            change[end] -= size
            continue
        # One longer than the period is there all the time, as often as whole periods fit, and once more for the rest.
        whole, rest = divmod(end - start, period_us)
        begin = start % period_us
        change[0] += whole * size + (size if begin + rest > period_us else 0)
        change[begin] += size
        change[(begin + rest) % period_us if begin + rest > period_us else begin + rest] -= size
    now, best = 0, (0, 0)
    for moment in sorted(change):
        now += change[moment]
        if now > best[0]:
            best = now, moment
    return best


def _activation_bytes(job: CheckedJob, worker: int) -> int:
    levels = (i.blocks[worker].level for i in job.plan.iterations if worker < len(i.blocks))
    deepest = max((level for level in levels if 1 <= level <= job.terms.depth), default=0)
    return job.terms.activation_bytes[deepest - 1] if deepest else 0
