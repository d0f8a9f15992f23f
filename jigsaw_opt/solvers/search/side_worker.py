"""A search for another process: it goes on with its own chance, and exchanges plans and bounds when it is asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import MoveRecord
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves import Move
from jigsaw_opt.solvers.solve_state import Condition, SolveState


@dataclass(frozen=True, slots=True)
class SearchTask:
    """What a worker searches for, and how.

    `name`: name of the solver. `options`: with the time that is left, and without goals, which the solve looks at.
    `part, conditions`: as `SolveState` has them. `bound`: what is proven already. `stream`: number of the search.
    `only`: the one class of moves to make; None for all. `held`: GPUs of jobs that stay there, as `Layout` has them.
    """

    name: str
    operations: Operations
    options: Options
    part: str
    conditions: Sequence[Condition]
    bound: Bound
    stream: int
    only: type[Move] | None
    held: Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class SearchNews:
    """What one side has to tell the other one.

    `best`: objective and timetable of a plan that is better than all that were told before; None for none.
    `bound`: a bound likewise.
    `moves`: what moves came to since the last exchange. `searching`: whether there are first plans, and moves follow.
    `ended`: whether the search has ended. `failure`: what exception ended it; empty for none.
    """

    best: tuple[int, Timetable] | None = None
    bound: Bound | None = None
    moves: Sequence[MoveRecord] = ()
    searching: bool = False
    ended: bool = False
    failure: str = ""


class SearchWorker:
    """A search in a thread of its own, beside which another thread exchanges news."""

    def __init__(self) -> None:
        self._failure = ""
        self._told: int | None = None

    def begin(self, task: SearchTask, news: SearchNews) -> None:
        """Begin to search, with what is known already."""
        with clock.limited(clock.Clock(task.options.time_limit, task.options.cancel, task.options.grace)):
            self._state = SolveState(
                *(task.name, task.operations, task.options, lambda _: None, task.part),
                conditions=task.conditions,
                known=task.bound,
            )
            self._driver = Driver(self._state, task.stream, only=task.only, held=task.held)
            self._take(news)
            self._thread = Thread(target=clock.in_context(self._search), name="jigsaw-search", daemon=True)
            self._thread.start()

    def exchange(self, news: SearchNews) -> SearchNews:
        """Take news, and return what is new here."""
        ended = not self._thread.is_alive()
        self._take(news)
        incumbent, best = self._state.incumbent, None
        if incumbent is not None and (self._told is None or incumbent[0] < self._told):
            self._told, best = incumbent[0], incumbent
        moves = self._state.credited()
        return SearchNews(best, None, moves, self._driver.begun.is_set(), ended, self._failure)

    def _take(self, news: SearchNews) -> None:
        if news.bound is not None:
            self._state.raise_bound(*news.bound)
        if news.best is not None:
            # By its own objective, as the search may have found a better one meanwhile.
            self._told = news.best[0] if self._told is None else min(self._told, news.best[0])
            self._state.offer(news.best[1])

    def _search(self) -> None:
        try:
            with suppress(OutOfTimeError):
                self._driver.run()
        except Exception as error:  # noqa: BLE001 # it is told where the solve is
            self._failure = f"{type(error).__name__}: {error}"
