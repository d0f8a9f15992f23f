"""Placed jobs in flat lists or arrays of integers, and the schedules that `timing` and `compression` make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import accumulate, chain

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import halting, left, look, looking
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, arrays, compiled, prepare
from jigsaw_opt.solvers.greedy.layout import Layout
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.kernels.compression import compress
from jigsaw_opt.solvers.kernels.list_schedule_state import Filled, Places, Shape
from jigsaw_opt.solvers.kernels.list_scheduling import list_schedule
from jigsaw_opt.solvers.magnitude import schedules_fit

__all__ = ["Flat"]

_PATIENCE = 400_000
"""Pieces that are scheduled before compiled functions are asked for: a fraction of a second."""
_LEAST_LEFT = 2.0
"""Seconds that a solve must have left for that: importing numba takes one of them, and more beside a large instance."""
_MOMENT = 0.5
"""Seconds to wait for them at most."""
_LONG = 50_000
"""From so many pieces on a schedule takes a moment in which the clock has to be looked at."""


class Flat:
    """The jobs of an instance in flat lists; in arrays, once there are compiled functions to take them.

    Parameters
    ----------
    pieces
        The instance, cut.
    layout
        Its GPUs.
    """

    def __init__(self, pieces: Pieces, layout: Layout) -> None:
        look()
        jobs = pieces.jobs
        self.gpus, self.links = len(layout.gpus), layout.links
        self._fast, self._large = False, not schedules_fit(pieces)
        self._scheduled, self._size = 0, pieces.blocks + pieces.transfers
        self._placed: list[PlacedJob | None] = [None] * len(jobs)
        slots, depth = [job.slots for job in jobs], [job.levels for job in jobs]
        iterations, buckets = [job.iterations for job in jobs], [len(job.transfers) for job in jobs]
        sizes = {
            "slot_at": slots,
            "table_at": [s * d for s, d in zip(slots, depth, strict=True)],
            "row_at": [s * i for s, i in zip(slots, iterations, strict=True)],
            "exchange_at": [b * i for b, i in zip(buckets, iterations, strict=True)],
            "link_at": [min(layout.links, 2 * s) if s > 1 else 0 for s in slots],
        }
        self._room = sizes["link_at"]
        offsets = {name: [0, *accumulate(size)] for name, size in sizes.items()}
        total = {name: max(1, offset.pop()) for name, offset in offsets.items()}
        self.shape = Shape(slots, depth, iterations, buckets, [job.release_us for job in jobs], **offsets)
        count, rows, exchanges = len(jobs), total["row_at"], total["exchange_at"]
        by_slot, traced = total["slot_at"], rows + exchanges
        sizes_of_places = (
            by_slot,
            by_slot,
            by_slot,
            total["table_at"],
            rows,
            count,
            exchanges,
            total["link_at"],
            count,
        )
        sizes_of_filled = (rows, rows, exchanges, traced, traced, count, count)
        self.places = Places(*([0] * size for size in looking(sizes_of_places)))
        self.filled, self._trial = (Filled(*([0] * size for size in looking(sizes_of_filled))) for _ in range(2))
        self.period_us: int | None = None

    def schedule(
        self, jobs: Sequence[PlacedJob], rate: Sequence[float], hold_us: Sequence[int], sweeps: int = 0
    ) -> None:
        """Fill in the list schedule of placed jobs.

        Parameters
        ----------
        jobs
            The jobs, placed.
        rate
            By job; times the iterations left it is the priority of its pieces, of which the smallest goes first.
        hold_us
            By job, it starts no earlier than this moment nor than its release.
        sweeps
            Where positive, the schedule is laid around a circle and compressed by at most so many sweeps.

        Raises
        ------
        OutOfTimeError
            The clock ended it before there was a schedule.
        """
        self._hasten(sweeps)
        for index, job in enumerate(looking(jobs) if self._size >= _LONG else jobs):
            if job is not self._placed[index]:
                self._place(index, job)
        hold: Numbers = [max(hold, job.job.release_us) for hold, job in zip(hold_us, jobs, strict=True)]
        rates: Reals = list(rate)
        schedule, shorten = compiled(list_schedule), compiled(compress)
        if not self._fast or schedule is None or shorten is None:
            schedule, shorten = list_schedule, compress
        else:
            hold, rates = arrays(hold), arrays(rates)
        halt: Numbers = [0]
        if self._fast:
            halt = arrays(halt)
        with halting(halt) if self._size >= _LONG else nullcontext():
            traced = schedule(self.shape, self.places, rates, hold, self.gpus, self.links, self.filled, halt)
            period_us = 0
            if sweeps and traced >= 0:
                numbers = traced, sweeps, self.gpus, self.links
                period_us = int(shorten(self.shape, self.places, *numbers, self.filled, self._trial, halt))
        if traced < 0 or period_us < 0:
            raise OutOfTimeError("the time limit was reached")
        self.period_us = period_us or None

    def ends(self) -> list[int]:
        """Last barrier of every job."""
        return _integers(self.filled.end)

    def begins(self) -> list[int]:
        """First start of every job."""
        return _integers(self.filled.begin)

    def levels(self, index: int) -> list[list[int]]:
        """Levels of a job by iteration and slot."""
        return self._by_iteration(index, self.filled.level, self.shape.row_at, self.shape.slots)

    def blocks(self, index: int) -> list[list[int]]:
        """Starts of the blocks of a job by iteration and slot."""
        return self._by_iteration(index, self.filled.start, self.shape.row_at, self.shape.slots)

    def transfers(self, index: int) -> list[list[int]]:
        """Starts of the transfers of a job by iteration and bucket."""
        return self._by_iteration(index, self.filled.begun, self.shape.exchange_at, self.shape.buckets)

    def _by_iteration(self, index: int, numbers: Numbers, offset: Numbers, width: Numbers) -> list[list[int]]:
        at, wide, iterations = int(offset[index]), int(width[index]), int(self.shape.iterations[index])
        flat = _integers(numbers[at : at + wide * iterations])
        return [flat[i * wide : (i + 1) * wide] for i in range(iterations)]

    def _place(self, index: int, job: PlacedJob) -> None:
        """Write down where a job is."""
        self._placed[index] = job
        shape, places = self.shape, self.places
        slots, levels = job.job.slots, job.job.levels
        if len(job.links) > self._room[index]:
            self._make_room(index, len(job.links))
            shape, places = self.shape, self.places
        for numbers, at, values in (
            (places.gpu, shape.slot_at, job.gpus),
            (places.slot_us, shape.slot_at, job.slot_us),
            (places.cap, shape.slot_at, job.caps or [levels] * slots),
            (places.table, shape.table_at, list(chain.from_iterable(job.tables))),
            (places.row, shape.row_at, list(chain.from_iterable(job.plan.rows))),
            (places.exchange, shape.exchange_at, list(chain.from_iterable(job.exchange))),
            (places.link, shape.link_at, job.links),
        ):
            begin = at[index]
            numbers[begin : begin + len(values)] = values
        places.fixed[index], places.links[index] = int(job.plan.fixed), len(job.links)

    def _make_room(self, index: int, links: int) -> None:
        """Give a job room for more links, at the end of all."""
        self._room[index], self.shape.link_at[index] = links, len(self.places.link)
        link: Numbers = [*_integers(self.places.link), *[0] * links]
        if self._fast:
            link = arrays(link)
        self.places = self.places._replace(link=link)

    def _hasten(self, sweeps: int) -> None:
        """Take the compiled functions as soon as there are any; ask for them once they are worth it."""
        if self._fast or self._large:
            return
        if compiled(list_schedule) and compiled(compress):
            self._fast = True
            self.shape, self.places = arrays(self.shape), arrays(self.places)
            self.filled, self._trial = arrays(self.filled), arrays(self._trial)
        elif self._scheduled < _PATIENCE:
            self._scheduled += self._size * (1 + sweeps)
            if self._scheduled >= _PATIENCE and left() > _LEAST_LEFT:
                prepare(_MOMENT)


def _integers(numbers: Numbers) -> list[int]:
    plain: Callable[[], list[int]] | None = getattr(numbers, "tolist", None)
    return list(numbers) if plain is None else plain()
