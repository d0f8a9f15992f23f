"""No two blocks at once on a GPU, no two transfers at once on a link (specification: exclusive, cyclic-horizon)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

__all__ = ["overlaps"]


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
