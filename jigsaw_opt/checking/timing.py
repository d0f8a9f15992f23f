"""Rules for times (specification: duration, readiness, order, release, barrier, period, exclusive, cyclic-horizon)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.terms import transfer_duration
from jigsaw_opt.checking.violation import Rule, Violation
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.plan import Iteration


def timing(job: CheckedJob) -> Iterator[Violation]:
    """Check what one iteration asks of its own blocks and transfers, and of the next one's blocks."""
    rule: Rule = "release"
    earliest = job.job.release_us
    exchange_us: dict[tuple[int, int], int] = {}
    for path, iteration in job.iterations():
        yield from _starts(iteration, path, rule, earliest)
        yield from _lengths(job, iteration, path)
        if job.has_all_transfers(iteration):
            yield from _order(iteration, path)
            yield from _readiness(job, iteration, path)
            yield from _exchanges(job, iteration, path, exchange_us)
        rule, earliest = "barrier", iteration.end_us


def wrap(job: CheckedJob, period_us: int) -> Iterator[Violation]:
    """Check the barrier between the last iteration and the first of the next period (specification: period)."""
    for path, iteration in job.iterations():
        lengths = [(f"{path}.blocks[{i}]", b.end_us - b.start_us) for i, b in enumerate(iteration.blocks)]
        lengths += [(f"{path}.transfers[{i}]", t.end_us - t.start_us) for i, t in enumerate(iteration.transfers)]
        for where, length in lengths:
            if length > period_us:
                yield Violation("period", where, f"lasts {length} us, longer than the period of {period_us} us")
    if job.plan.iterations and job.plan.iterations[0].blocks:
        start = min(block.start_us for block in job.plan.iterations[0].blocks)
        end = job.plan.end_us
        # All iterations of a period lie before the first of the next period.
        if start + period_us < end:
            message = f"ends at {end}, after its next period begins at {start + period_us}"
            yield Violation("period", job.path, message)


def _starts(iteration: Iteration, path: str, rule: Rule, earliest: int) -> Iterator[Violation]:
    moment = "the release of the job" if rule == "release" else "the end of the previous iteration"
    for worker, block in enumerate(iteration.blocks):
        if block.start_us < earliest:
            message = f"starts at {block.start_us}, before {moment} at {earliest}"
            yield Violation(rule, f"{path}.blocks[{worker}]", message)


def _lengths(job: CheckedJob, iteration: Iteration, path: str) -> Iterator[Violation]:
    for worker, block in enumerate(iteration.blocks):
        durations = job.durations[worker] if worker < len(job.durations) else None
        known = durations is not None and 1 <= block.level <= len(durations)
        least = durations[block.level - 1] if durations is not None and known else 0
        if block.end_us - block.start_us < least:
            message = f"lasts {block.end_us - block.start_us} us, but level {block.level} takes {least} us"
            yield Violation("duration", f"{path}.blocks[{worker}]", message)


def _order(iteration: Iteration, path: str) -> Iterator[Violation]:
    for before, transfer in zip(iteration.transfers, iteration.transfers[1:], strict=False):
        if transfer.start_us < before.end_us:
            where = f"{path}.transfers[{transfer.bucket - 1}]"
            message = (
                f"starts at {transfer.start_us}, before bucket {before.bucket} has been exchanged at {before.end_us}"
            )
            yield Violation("order", where, message)


def _readiness(job: CheckedJob, iteration: Iteration, path: str) -> Iterator[Violation]:
    workers = [
        (block.level, block.start_us, durations)
        for block, durations in zip(iteration.blocks, job.durations, strict=False)
        if durations is not None and 1 <= block.level <= len(durations)
    ]
    for index, transfer in enumerate(iteration.transfers):
        ready = max((start + durations[index] for level, start, durations in workers if level > index), default=0)
        if transfer.start_us < ready:
            message = f"starts at {transfer.start_us}, before bucket {transfer.bucket} is ready at {ready}"
            yield Violation("readiness", f"{path}.transfers[{index}]", message)


def _exchanges(
    job: CheckedJob, iteration: Iteration, path: str, exchange_us: dict[tuple[int, int], int]
) -> Iterator[Violation]:
    """Check durations of transfers; one without a contributor has none, and is the depth rule's matter."""
    levels, exchange = job.levels(iteration), job.exchange
    if levels is None or exchange is None:
        return
    for index, transfer in enumerate(iteration.transfers):
        contributors = sum(level > index for level in levels)
        # The duration depends on nothing else, and most iterations repeat the same few pairs.
        key = index, contributors
        if contributors and key not in exchange_us:
            payload = job.terms.bucket_bytes[index]
            exchange_us[key] = transfer_duration(
                payload, contributors, job.job.workers, exchange.rate, exchange.latency_us
            )
        least = exchange_us[key] if contributors else 0
        if transfer.end_us - transfer.start_us < least:
            length = transfer.end_us - transfer.start_us
            message = f"lasts {length} us, but bucket {transfer.bucket} from {contributors} workers takes {least} us"
            yield Violation("duration", f"{path}.transfers[{index}]", message)


_end = attrgetter("end_us")


class _Use(NamedTuple):
    """A positive stretch of time on a lane, and whose it is; its path is put together only when needed."""

    start_us: int
    end_us: int
    job: str
    iteration: int
    kind: str
    number: int

    @property
    def path(self) -> str:
        return f"{self.job}.iterations[{self.iteration}].{self.kind}[{self.number}]"


def overlaps(
    jobs: Sequence[CheckedJob | CheckedTaskGraphJob], cluster: Cluster, period_us: int | None
) -> Iterator[Violation]:
    """Report every block and transfer that begins while its GPU or one of its links is still in use.

    Notes
    -----
    Specification: exclusive, cyclic-horizon.
    """
    gpus: defaultdict[str, list[_Use]] = defaultdict(list)
    links: defaultdict[int, list[_Use]] = defaultdict(list)
    for job in jobs:
        if isinstance(job, CheckedTaskGraphJob):
            _occupy_task_graph(job, gpus, links)
        else:
            _occupy_gpus(job, gpus)
            _occupy_links(job, links)
    lanes = [(f"GPU {gpu}", uses) for gpu, uses in gpus.items()]
    lanes += [(f"link {cluster.links[number].name}", uses) for number, uses in links.items()]
    for name, uses in lanes:
        pairs = _clashes(uses) if period_us is None else _clashes_modulo(uses, period_us)
        for use, holder in pairs:
            message = f"starts at {use.start_us} on {name} while {holder.path} runs ({_times(holder, period_us)})"
            yield Violation("exclusive", use.path, message)


def _times(use: _Use, period_us: int | None) -> str:
    return f"{use.start_us} to {use.end_us}" + (f", modulo {period_us}" if period_us else "")


def _occupy_gpus(job: CheckedJob, gpus: defaultdict[str, list[_Use]]) -> None:
    lanes = [gpus[gpu] if server is not None else None for gpu, server in zip(job.plan.gpus, job.servers, strict=True)]
    for number, iteration in enumerate(job.plan.iterations):
        for index, (block, lane) in enumerate(zip(iteration.blocks, lanes, strict=False)):
            # What takes no time is in nobody's way.
            if lane is not None and block.start_us < block.end_us:
                lane.append(_Use(block.start_us, block.end_us, job.path, number, "blocks", index))


def _occupy_links(job: CheckedJob, links: defaultdict[int, list[_Use]]) -> None:
    lanes = [links[number] for number in job.exchange.links] if job.exchange is not None else []
    for number, iteration in enumerate(job.plan.iterations if lanes else ()):
        for index, transfer in enumerate(iteration.transfers):
            if transfer.start_us < transfer.end_us:
                use = _Use(transfer.start_us, transfer.end_us, job.path, number, "transfers", index)
                for lane in lanes:
                    lane.append(use)


def _occupy_task_graph(
    job: CheckedTaskGraphJob, gpus: defaultdict[str, list[_Use]], links: defaultdict[int, list[_Use]]
) -> None:
    for number, iteration in enumerate(job.plan.iterations):
        for kind, terms in (("blocks", job.blocks), ("transfers", job.transfers)):
            executions = iteration.blocks if kind == "blocks" else iteration.transfers
            for index, (term, found) in enumerate(zip(terms, executions, strict=False)):
                if found.start_us < found.end_us:
                    use = _Use(found.start_us, found.end_us, job.path, number, kind, index)
                    for lane in (*(gpus[gpu] for gpu in term.gpus), *(links[link] for link in term.links)):
                        lane.append(use)


def _later(one: _Use, other: _Use) -> _Use:
    """Return whichever ends later."""
    return other if other.end_us > one.end_us else one


def _clashes(uses: list[_Use]) -> Iterator[tuple[_Use, _Use]]:
    """Yield each use that starts before an earlier one has ended, with the one that ends last of those."""
    # By start, as that is the first field.
    uses.sort()
    # The running maximum of the ends: a use clashes with some earlier one if it does with that one.
    for use, holder in zip(uses[1:], accumulate(uses, _later), strict=False):
        if use.start_us < holder.end_us:
            yield use, holder


def _clashes_modulo(uses: list[_Use], period_us: int) -> Iterator[tuple[_Use, _Use]]:
    """Yield clashes as `_clashes` does, with every use moved into the first period; what reaches out comes round."""
    moved = {}
    for use in uses:
        start = use.start_us % period_us
        # Messages speak of the times that the plan states, so the original is kept.
        moved[use._replace(start_us=start, end_us=start + use.end_us - use.start_us)] = use
    found = dict(_clashes(list(moved)))
    # What reaches past the period comes round to its beginning; the use that ends last reaches furthest.
    last = max(moved, key=_end, default=None)
    for use in sorted(moved):
        if last is None or use.start_us >= last.end_us - period_us:
            break
        if use is not last:
            found.setdefault(use, last)
    yield from ((moved[use], moved[holder]) for use, holder in found.items())
