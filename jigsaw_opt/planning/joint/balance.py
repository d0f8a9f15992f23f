"""The cut whose slowest stage takes least time, as a partition has it."""

from __future__ import annotations

from jigsaw_opt.planning.joint.stage_table import Cut, StageTable

__all__ = ["balanced_cut"]


def balanced_cut(table: StageTable) -> Cut | None:
    """Return the cut whose slowest stage takes least time; None where there is none within the memory.

    Of a device's memory each stage has as much as the micro-batches take that 1F1B has in flight there, if there is
    such a cut, else that of one micro-batch. Stages compute activations again where all have to, or where nothing else
    fits.
    """
    modes = table.configuration.modes
    return next((cut for again in modes for whole in (True, False) if (cut := _balanced(table, again, whole))), None)


def _balanced(table: StageTable, again: bool, whole: bool) -> Cut | None:
    """Find the balanced cut by dynamic programming from the last stage; `whole`: as 1F1B has it in flight."""
    import numpy as np

    layout, never = table.configuration.layout, 2**60
    # A stage takes so much of its device for each micro-batch, and the slowest one sets the speed of all.
    work = table.forward_us * (1 + again) + table.backward_us + table.weight_us
    held = table.received_bytes if again else table.activation_bytes
    always = table.static_bytes + (table.activation_bytes if again else 0)
    last = len(work) - 1
    best = np.full(last + 1, never, dtype=np.int64)
    best[last] = 0
    choices = []
    for stage in reversed(range(layout.stages)):
        # 1F1B has as many micro-batches in flight at a stage as there are devices from it on, itself included.
        flight = min(layout.micro_batches, -(-(layout.stages - stage) // layout.chunks)) if whole else 1
        possible = table.positions.within
        if table.choices.memory is not None:
            # Devices have several stages, so each gets its part of the memory.
            possible = possible & (layout.chunks * (always + flight * held) <= table.choices.memory)
        # Row: begin of the stage; column: its end, where the next one begins.
        slowest = np.maximum(np.where(possible, work, never), best[None, :])
        choices.append(slowest.argmin(axis=1))
        best = slowest.min(axis=1)
    if best[0] >= never:
        return None
    ends = [0]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return Cut(tuple(ends[1:]), (again,) * layout.stages)
