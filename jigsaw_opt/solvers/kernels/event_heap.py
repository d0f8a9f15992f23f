"""Events in a binary heap on flat numbers: the earliest one first, of several at a moment the one of the least code.

The list begins with the number of events. Moment and code of event k follow at 2k - 1 and 2k; its parent is k // 2.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers


def push_event(heap: Numbers, moment: int, code: int) -> None:
    """Insert an event."""
    heap[0] += 1
    here = heap[0]
    while here > 1:
        up = here // 2
        if moment > heap[2 * up - 1] or (moment == heap[2 * up - 1] and code > heap[2 * up]):
            break
        heap[2 * here - 1], heap[2 * here] = heap[2 * up - 1], heap[2 * up]
        here = up
    heap[2 * here - 1], heap[2 * here] = moment, code


def pop_event(heap: Numbers) -> int:
    """Remove the first event, and return its code.

    `heap`: the heap, not empty; changes.
    """
    first, last, here = heap[2], heap[0], 1
    moment, code = heap[2 * last - 1], heap[2 * last]
    heap[0] = last - 1
    while 2 * here < last:
        down = 2 * here
        # The smaller one of the two children.
        if down + 1 < last and (
            heap[2 * down + 1] < heap[2 * down - 1]
            or (heap[2 * down + 1] == heap[2 * down - 1] and heap[2 * down + 2] < heap[2 * down])
        ):
            down += 1
        if moment < heap[2 * down - 1] or (moment == heap[2 * down - 1] and code < heap[2 * down]):
            break
        heap[2 * here - 1], heap[2 * here] = heap[2 * down - 1], heap[2 * down]
        here = down
    heap[2 * here - 1], heap[2 * here] = moment, code
    return first
