"""From starts by activity to a timetable, and back."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.activities import ShapedDecision, assemble_shaped
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.timetable import Gpu, Timetable

__all__ = ["starts_of", "timetable_of"]


def timetable_of(
    operations: Operations,
    begins: Sequence[int],
    gpus: Sequence[Sequence[Gpu]],
    starts: Sequence[int],
    period: int | None,
) -> Timetable:
    """The timetable of starts.

    Parameters
    ----------
    operations
        The instance, cut; all its jobs have shapes.
    begins
        By job, how many activities there are before it.
    gpus
        By job, the GPU of each slot.
    starts
        By activity, in microseconds.
    period
        In microseconds; None on the finite horizon.
    """
    decisions = []
    for begin, graph, own in zip(begins, operations.shaped, gpus, strict=True):
        places = range(begin, begin + graph.job.iterations * graph.size, graph.size)
        decisions.append(ShapedDecision(own, [starts[at : at + graph.size] for at in places]))
    return Timetable((), period, assemble_shaped(operations, decisions))


def starts_of(timetable: Timetable) -> list[int]:
    """Starts by activity of a timetable of shaped jobs, in microseconds."""
    return [
        done.start_us
        for plan in timetable.shaped
        for iteration in plan.iterations
        for done in (*iteration.blocks, *iteration.transfers)
    ]
