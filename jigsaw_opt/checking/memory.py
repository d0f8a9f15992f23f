"""The memory and the licences that present jobs take (specification: memory, holds, licences)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

_Job = CheckedJob | CheckedTaskGraphJob
_Amount = tuple[int, int, int]
"""Start, end and amount of what is taken from a start up to an end."""


def memory(
    jobs: Sequence[_Job], cluster: Cluster, period_us: int | None, activations: Mapping[str, Sequence[int]]
) -> Iterator[Violation]:
    """Check the most bytes that the present jobs need on a GPU at one moment against its memory.

    On the finite horizon a job is present from the start of its first operation up to the end of its last one; in a
    plan that is repeated, all the time.

    `activations`: bytes of activations of each worker at its deepest level in the whole plan, by job.

    Notes
    -----
    Specification: memory, holds.
    """
    kept: defaultdict[str, list[_Amount]] = defaultdict(list)
    largest: defaultdict[str, list[_Amount]] = defaultdict(list)
    last: dict[str, tuple[str, int]] = {}
    for job in jobs:
        start, end = (0, period_us) if period_us is not None else _presence(job)
        for number, (gpu, server) in enumerate(zip(job.plan.gpus, job.servers, strict=True)):
            if server is None or start >= end:
                continue
            last[gpu] = (f"{job.path}.gpus[{number}]", server)
            if isinstance(job, CheckedJob):
                kept[gpu].append((start, end, job.terms.state_bytes))
                largest[gpu].append((start, end, activations[job.job.name][number]))
            elif number < len(job.shape.slots):
                kept[gpu].append((start, end, job.shape.slots[number].memory))
        for gpu, *hold in job.held() if isinstance(job, CheckedTaskGraphJob) else ():
            kept[gpu].append((hold[0], hold[1], hold[2]))
    for gpu, (path, server) in last.items():
        need, moment = most_at_once(kept[gpu], period_us, largest[gpu])
        limit = cluster.servers[server].gpu_memory
        if need > limit:
            message = f"the jobs on GPU {gpu} need {need} bytes at {moment}, but it has {limit}"
            yield Violation("memory", path, message)


def licences(jobs: Sequence[_Job], cluster: Cluster, period_us: int | None) -> Iterator[Violation]:
    """Check how many of the jobs that name a licence are present at once (specification: licences)."""
    spans = [(0, period_us) if period_us else _presence(job) for job in jobs]
    for name, count in (cluster.licences or {}).items():
        named = (job.path if name in (job.job.licences or ()) else None for job in jobs)
        held = [(*span, path) for span, path in zip(spans, named, strict=True) if path and span[0] < span[1]]
        most, moment = most_at_once(((start, end, 1) for start, end, _ in held), period_us)
        if most > count:
            last = next(path for start, end, path in reversed(held) if start <= moment < end)
            yield Violation("licences", last, f"{most} jobs hold licence {name!r} at {moment}, but there are {count}")


def most_at_once(amounts: Iterable[_Amount], period_us: int | None, largest: Iterable[_Amount] = ()) -> tuple[int, int]:
    """Return the most that is taken at once and the first moment with so much, modulo the period of a cyclic plan.

    `amounts`: start, end and amount of each; times in microseconds. `largest`: the same of those that are not there at
    once, so that only the largest counts at a moment; in a cyclic plan between 0 and the period.
    """
    change = _changes(amounts, period_us)
    waiting = sorted(largest, reverse=True)
    change.update(dict.fromkeys((moment for start, end, _ in waiting for moment in (start, end)), 0))
    present: list[tuple[int, int]] = []
    now, best = 0, (0, 0)
    for moment in sorted(change):
        now += change[moment]
        while waiting and waiting[-1][0] <= moment:
            _, end, amount = waiting.pop()
            heappush(present, (-amount, end))
        while present and present[0][1] <= moment:
            heappop(present)
        most = now - present[0][0] if present else now
        if most > best[0]:
            best = most, moment
    return best


def _changes(amounts: Iterable[_Amount], period_us: int | None) -> Counter[int]:
    """Return by how much the sum of the amounts changes at each moment."""
    change: Counter[int] = Counter()
    for start, end, size in amounts:
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
    return change


def _presence(job: _Job) -> tuple[int, int]:
    """Return the start of a job's first operation and the end of its last one; twice 0 where it has none."""
    spans = [(operation.start_us, operation.end_us) for operation in job.plan.operations]
    return min((start for start, _ in spans), default=0), max((end for _, end in spans), default=0)


def activation_bytes(parts: Sequence[CheckedJob]) -> list[int]:
    """Return the bytes of activations of each worker of a job at its deepest level in all parts of a plan."""
    # A level that the model does not have, and a worker too many, are reported elsewhere.
    deepest = [0] * max(len(part.plan.gpus) for part in parts)
    for part in parts:
        for iteration in part.plan.iterations:
            for worker, block in enumerate(iteration.blocks[: len(deepest)]):
                if deepest[worker] < block.level <= part.terms.depth:
                    deepest[worker] = block.level
    terms = parts[0].terms
    return [terms.activation_bytes[level - 1] if level else 0 for level in deepest]
