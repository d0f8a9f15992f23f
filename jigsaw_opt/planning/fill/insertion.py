"""Background iterations inserted behind the iterations of one foreground job.

The foreground has a worker at full depth on every GPU. Behind each of its iterations its GPUs have a hole: what of the
exchange no block hides, and what a longer period adds. A background job has one worker, and shares its GPU with the
foreground alone; in each hole it runs as many iterations as fit.

Work that fits in a hole is a step function of its length. Where holes have a mean length and fractions of them were
allowed, no choice beats a mixture of two lengths at corners of the upper concave envelope of this function. So mixtures
of two such lengths, or of the shortest ones, are tried for up to 32 iterations of the foreground in a period. The
foreground keeps its exchange as it is alone; `fill` searches beyond this, and takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, pairwise
from typing import NamedTuple

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import UsageError, out_of_range, unsupported
from jigsaw_opt.planning.fill.loads import restricted
from jigsaw_opt.planning.shifts.jobs import OwnIteration, channel_of, iteration_of
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, assemble
from jigsaw_opt.problem.costs import ceil_div, ceil_fraction, most_bytes
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.correct import require_correct

_MOST_ITERATIONS = 32
"""Most iterations of the foreground in a period."""
_SHORTEST = 24
"""Lengths of holes that are tried beside the corners: iterations are whole, and few holes may do better with others."""


class _Mixture(NamedTuple):
    """A period's holes: `longer` of `number` are long, the others short."""

    short: int
    long: int
    longer: int
    number: int

    def lengths(self) -> tuple[int, ...]:
        """Return lengths of the holes, the long ones spread evenly."""
        marks = [k * self.longer // self.number for k in range(self.number + 1)]
        return tuple(self.long if after > before else self.short for before, after in pairwise(marks))

    def sum_of(self, short: int, long: int) -> int:
        """Sum of a number for each hole, one for the short ones and one for the long ones."""
        return self.longer * long + (self.number - self.longer) * short


def insert(instance: Instance, foreground: str, slowdown: float | Fraction = 1.1) -> tuple[Instance, Plan] | None:
    """Give every background job as much of the holes of a foreground job as fits.

    Parameters
    ----------
    instance
        A cyclic instance of data-parallel jobs on GPUs that are alike. The foreground has as many workers as there are
        GPUs, every other job has one, and there are no more of these than GPUs. How many iterations they have in it
        does not matter.
    foreground
        Name of the foreground job.
    slowdown
        Its iterations may take so many times as long as alone, at least 1.

    Returns
    -------
    tuple of Instance and Plan
        With the iterations of all jobs, at least one of each, and the cycle-time limit of the foreground; the plan is
        checked. None where memory or holes do not suffice for all, GPUs differ in type, or no path joins them.

    Raises
    ------
    UsageError
        The instance or the slow-down is another than this says.
    """
    factor = slowdown if isinstance(slowdown, Fraction) else Fraction(str(slowdown))
    _require_form(instance, foreground, factor)
    operations = compile_instance(instance)
    front = next(graph for graph in operations.jobs if graph.name == foreground)
    back = [graph for graph in operations.jobs if graph is not front]
    if not _have_room(operations, front, back):
        return None
    alone, others = _alone(operations, front), [_alone(operations, graph) for graph in back]
    lengths = _best_holes(alone, sorted({own.span_us for own in others}), factor)
    if lengths is None:
        return None
    period_us = sum(lengths) + len(lengths) * alone.compute_us
    starts = {foreground: _starts(alone, lengths)}
    for graph, own in zip(back, others, strict=True):
        starts[graph.name] = list(_behind(starts[foreground], alone, lengths, own))
    counts = {name: len(each) for name, each in starts.items()}
    filled = _with_guarantee(restricted(instance, counts), foreground, ceil_fraction(factor * alone.span_us))
    gpus = filled.cluster.gpus.places
    decisions = {foreground: _decision(front, gpus, alone, starts[foreground])}
    for gpu, graph, own in zip(gpus, back, others, strict=False):
        decisions[graph.name] = _decision(graph, [gpu], own, starts[graph.name])
    return filled, _plan(filled, [decisions[job.name] for job in filled.jobs], period_us)


def _require_form(instance: Instance, foreground: str, factor: Fraction) -> None:
    """Refuse what is no foreground job on all GPUs with other jobs of one worker."""
    if instance.horizon != "cyclic":
        raise unsupported(
            "instance", f"instance {instance.name!r} has a finite horizon; holes of a period need a cyclic one"
        )
    if not factor >= 1:
        raise out_of_range("slowdown", f"slowdown is at least 1, not {factor}")
    if any(job.depth != FullDepth() for job in instance.data_parallel):
        raise UsageError("jobs are inserted at full depth alone", code="unsupported")
    front = [job for job in instance.data_parallel if job.name == foreground]
    back = [job for job in instance.data_parallel if job.name != foreground]
    count = instance.cluster.gpu_count
    if [job.workers for job in front] != [count]:
        raise UsageError(
            f"a job {foreground!r} on all {count} GPUs is in the foreground", code="contradiction", path="foreground"
        )
    if not 1 <= len(back) <= count or any(job.workers > 1 for job in back):
        raise UsageError(f"between 1 and {count} jobs of one worker are in the background", code="wrong-count")


def _have_room(operations: Operations, front: OperationGraph, back: Sequence[OperationGraph]) -> bool:
    """Return whether GPUs are alike and joined, and each holds the foreground and any of the others."""
    servers = operations.cluster.servers
    memory, types = min(server.gpu_memory for server in servers), {server.gpu_type for server in servers}
    alike = len(types) == 1 and all(types <= set(graph.gpu_types) for graph in (front, *back))
    joined = _channel(operations, front) is not None
    return alike and joined and all(most_bytes((front, own)) <= memory for own in back)


def _channel(operations: Operations, graph: OperationGraph) -> Channel | None:
    """Return the channel of a job: over all GPUs for a foreground; a job of one worker exchanges nothing."""
    return channel_of(operations, graph, operations.cluster.gpus.places[: None if graph.slots > 1 else 1])


def _alone(operations: Operations, graph: OperationGraph) -> OwnIteration:
    channel = _channel(operations, graph)
    assert channel is not None, "there is room"
    table = graph.blocks[0].duration_us[operations.cluster.servers[0].gpu_type]
    return iteration_of(graph, [table] * graph.slots, [graph.levels] * graph.slots, channel)


def _best_holes(alone: OwnIteration, each_us: Sequence[int], factor: Fraction) -> tuple[int, ...] | None:
    """Return holes of two lengths into which jobs with iterations of `each_us` do most work; None if one fits in none.

    Most work a microsecond counts, then a faster foreground, and then a shorter period.
    """
    best: _Mixture | None = None
    most, period_us = 0, 1
    for holes in _mixtures(alone, each_us, factor):
        work = holes.sum_of(_work(holes.short, each_us), _work(holes.long, each_us))
        own_us = holes.sum_of(holes.short, holes.long) + holes.number * alone.compute_us
        # Work a microsecond of this mixture against the best one, in exact integers.
        gain = work * period_us - most * own_us
        if best is None or gain > 0 or (gain == 0 and own_us * best.number < period_us * holes.number):
            best, most, period_us = holes, work, own_us
    return None if best is None else best.lengths()


def _mixtures(alone: OwnIteration, each_us: Sequence[int], factor: Fraction) -> Iterator[_Mixture]:
    """Yield mixtures with room for all: as many long holes as the slow-down allows, one, or none."""
    least_us = alone.span_us - alone.compute_us
    extra = (factor - 1) * alone.span_us
    lengths = _lengths(least_us, each_us, least_us + int(_MOST_ITERATIONS * extra))
    for count in range(1, _MOST_ITERATIONS + 1):
        allowed_us = int(count * extra)
        for short, long in combinations_with_replacement(lengths, 2):
            spare_us = allowed_us - count * (short - least_us)
            if spare_us < 0 or long < each_us[-1]:
                continue
            # Each long hole takes the difference of both lengths from what the slow-down allows.
            most = min(count, spare_us // (long - short)) if long > short else 0
            for longer in sorted({min(1, most), most}):
                if longer or short >= each_us[-1]:
                    yield _Mixture(short, long, longer, count)


def _lengths(least_us: int, each_us: Sequence[int], most_us: int) -> list[int]:
    """Return corners of the upper concave envelope of work over length, and the shortest lengths; ascending.

    The least length for each job is among them.
    """
    # Work rises only where one more iteration of a job fits, so no other lengths than these can be corners.
    multiples = {k * own for own in each_us for k in range(ceil_div(least_us, own), most_us // own + 1)}
    corners: list[int] = []
    for length in sorted({least_us, *multiples}):
        while len(corners) > 1 and _is_below(corners[-2], corners[-1], length, each_us):
            corners.pop()
        corners.append(length)
    firsts = {max(1, ceil_div(least_us, own)) * own for own in each_us}
    shortest = sorted({least_us, *multiples})[:_SHORTEST]
    return sorted({*corners, *shortest, *(length for length in firsts if length <= most_us)})


def _is_below(low: int, middle: int, high: int, each_us: Sequence[int]) -> bool:
    """Return whether the work in a hole of the middle length is not above the line between the other two."""
    gained, over = _work(middle, each_us) - _work(low, each_us), _work(high, each_us) - _work(low, each_us)
    return gained * (high - low) <= over * (middle - low)


def _work(length_us: int, each_us: Sequence[int]) -> int:
    """Return GPU time that iterations take in a hole, summed over one job of each length."""
    return sum(length_us // own * own for own in each_us)


def _starts(alone: OwnIteration, lengths: Sequence[int]) -> list[int]:
    """Return when iterations of the foreground start."""
    return list(accumulate((alone.compute_us + length for length in lengths[:-1]), initial=0))


def _behind(starts: Sequence[int], alone: OwnIteration, lengths: Sequence[int], own: OwnIteration) -> Iterator[int]:
    """Yield when iterations of a background job start, as many in each hole as fit."""
    for start_us, length in zip(starts, lengths, strict=True):
        for k in range(length // own.span_us):
            yield start_us + alone.compute_us + k * own.span_us


def _decision(graph: OperationGraph, gpus: Sequence[Gpu], own: OwnIteration, starts: Sequence[int]) -> JobDecision:
    levels = [[graph.levels] * len(gpus)] * len(starts)
    transfers = [[start_us + after_us for after_us, _ in own.transfers()] for start_us in starts]
    return JobDecision(gpus, levels, [[start_us] * len(gpus) for start_us in starts], transfers)


def _with_guarantee(instance: Instance, name: str, pace_us: int) -> Instance:
    jobs = tuple(altered(job, pace_us=pace_us) if job.name == name else job for job in instance.jobs)
    return altered(instance, jobs=jobs)


def _plan(instance: Instance, decisions: Sequence[JobDecision], period_us: int) -> Plan:
    jobs = assemble(compile_instance(instance), decisions)
    plan = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", period_us, 1, period_us, jobs)
    require_correct(instance, plan, "insertion")
    return plan
