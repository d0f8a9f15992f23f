"""Jobs laid and laid again on the line of a finite horizon: insertion, ruin and recreate."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.candidates import Places
from jigsaw_opt.solvers.search.state.insertion import Laid
from jigsaw_opt.solvers.search.state.partial_schedule import Board

__all__ = ["Line"]

_MOST_AWAY = 4
_MOST_NEAR = 12


class Line:
    """A board with the means to change it.

    Parameters
    ----------
    board
        With some jobs laid.
    fixed
        GPUs of the jobs that may not choose them, by number of the job.
    draw
        Source of chance.
    """

    def __init__(self, board: Board, fixed: Mapping[int, Sequence[int]], draw: random.Random) -> None:
        self.board, self.fixed, self.draw = board, fixed, draw
        self.places = Places(board.ground, draw)
        self.weighted = board.ground.pieces.objective == "weighted_completion"

    @property
    def value(self) -> int:
        """Objective of the laid jobs."""
        return self._value([laid for laid in self.board.laid if laid is not None])

    def insert(self, index: int, old: PlacedJob | None = None, latest: int | None = None) -> bool:
        """Lay a job where it ends first; says whether there was room.

        Parameters
        ----------
        index
            Number of the job.
        old
            Where it was, tried beside other places.
        latest
            It has to end by then; None for no limit.
        """
        board, best = self.board, None
        begin = board.ground.pieces.jobs[index].release_us
        for spot in self._spots(index, old):
            laid = board.lay(index, spot, begin, latest)
            if laid is not None and (best is None or laid.end < best.end):
                best, latest = laid, laid.end
        if best is not None:
            board.put(index, best)
        return best is not None

    def make_room(self, index: int) -> bool:
        """Lay a job that memory has no room for: some jobs are taken out, and laid again after it."""
        laid = [other for other, it in enumerate(self.board.laid) if it is not None]
        away = self.draw.sample(laid, min(len(laid), self.draw.randint(1, _MOST_AWAY)))
        return self._relay([index], away, None)

    def step(self, first: int) -> bool:
        """Lay a job and some near it again; kept where their ends are no worse, and says whether they are better."""
        near = self._near(first)
        away = [first, *self.draw.sample(near, min(len(near), self.draw.randint(0, _MOST_AWAY)))]
        before = self._score(away)
        old = {index: self._laid(index) for index in away}
        latest = None if self.weighted else before[0]
        if not self._relay([], away, latest):
            return False
        after = self._score(away)
        if after > before:
            for index in away:
                self.board.take(index)
            for index, laid in old.items():
                self.board.put(index, laid)
        return after < before

    def last(self) -> int:
        """The job that ends last, or with weighted ends any."""
        laid = [index for index, it in enumerate(self.board.laid) if it is not None]
        return self.draw.choice(laid) if self.weighted else max(laid, key=lambda index: self._laid(index).end)

    def _relay(self, new: Sequence[int], away: Sequence[int], latest: int | None) -> bool:
        """Take jobs out and lay the new ones and them; all as before where one finds no room."""
        old = [(index, self.board.take(index)) for index in away]
        spots = {index: laid.spot for index, laid in old}
        order = list(away)
        if self.draw.random() < 0.7:
            self.draw.shuffle(order)
        done: list[int] = []
        for index in (*new, *order):
            if not self.insert(index, spots.get(index), latest):
                break
            done.append(index)
        if len(done) == len(new) + len(order):
            return True
        for index in done:
            self.board.take(index)
        for index, laid in old:
            self.board.put(index, laid)
        return False

    def _spots(self, index: int, old: PlacedJob | None) -> Iterator[PlacedJob]:
        loads, begun = self.board.loads, self.board.begun[index]
        if begun is not None:
            if loads.admits(index, begun.laid.spot):
                yield begun.laid.spot
            return
        if index in self.fixed:
            choices: Iterator[Sequence[int]] = iter([self.fixed[index]])
        else:
            choices = self._choices(index, old)
        for gpus in choices:
            spot = loads.spot(index, gpus)
            if spot is not None:
                yield spot

    def _choices(self, index: int, old: PlacedJob | None) -> Iterator[Sequence[int]]:
        if old is not None:
            yield old.gpus
        yield from self.places.of(self.board.loads, index, thorough=True)

    def _near(self, first: int) -> list[int]:
        """Jobs that share GPUs or links with a job, those on its GPUs first."""
        loads, spot = self.board.loads, self._laid(first).spot
        found = dict.fromkeys(other for gpu in spot.gpus for other in loads.on_gpu[gpu])
        found.update(dict.fromkeys(other for link in spot.links for other in loads.on_link[link]))
        return [other for other in found if other != first][:_MOST_NEAR]

    def _score(self, jobs: Sequence[int]) -> tuple[int, int]:
        """What some jobs add to the objective, and the sum of their ends."""
        laid = [self._laid(index) for index in jobs]
        return self._value(laid), sum(it.end for it in laid)

    def _value(self, laid: Sequence[Laid]) -> int:
        if self.weighted:
            return sum(it.job.weight * it.end for it in laid)
        return max((it.end for it in laid), default=0)

    def _laid(self, index: int) -> Laid:
        laid = self.board.laid[index]
        assert laid is not None, "only jobs that are laid are looked at"
        return laid
