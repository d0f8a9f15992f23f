"""Searches in processes of their own beside a solve, with which it exchanges plans and bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Event, Thread
from time import monotonic

from jigsaw_opt.problem import clock
from jigsaw_opt.solvers.search.moves import Move
from jigsaw_opt.solvers.search.side_worker import SearchNews, SearchTask, SearchWorker
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.system.companions import Companion, LocalCompanion, LostCompanionError, Maker
from jigsaw_opt.system.ray_cluster import RayCompanion, cores

_LOGGER = logging.getLogger(__name__)
_START_SECONDS = 1.0
"""Seconds of a solve before any process begins: many end within them, and a process takes half a second to begin."""
_LEAST_SECONDS = 1.0
"""Seconds of a limit that must be left for a process to be worth its beginning."""
_POLL_SECONDS = 0.05
"""Seconds between two exchanges, and between two looks at whether to begin."""
_PATIENCE_SECONDS = 0.5
"""Seconds in which the last exchange with a process has to come to its end."""


class SideSearches(AbstractContextManager["SideSearches"]):
    """Searches beside a solve, none of which outlives the block: one on each core of a Ray cluster that it names.

    One that is lost, as one that was killed, costs what it had found since the last exchange: the solve goes on with
    the others, and a warning says so.

    `begun`: set as soon as they may begin: there are first plans. `first`: the one class of moves that the first of
    them makes; None for all. `held`: GPUs of the jobs that stay there, as `Layout` has them.
    """

    def __init__(
        self,
        solve_state: SolveState,
        begun: Event,
        first: type[Move] | None = None,
        held: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.solve_state, self.first, self.held, self._begun = solve_state, first, held or {}, begun
        self._local = 0
        self._over = Event()
        self._workers: list[_SideSearch] = []
        self._error: Exception | None = None
        if solve_state.options.ray is not None:
            self.add(cores(), RayCompanion)

    def grow(self, count: int) -> None:
        """Let there be so many of them on this machine, once it is time for any."""
        self.add(count - self._local, LocalCompanion)
        self._local = max(self._local, count)

    def add(self, count: int, start: Callable[[Maker], Companion]) -> None:
        """Add some searches.

        `start`: begins a process.
        """
        for _ in range(count):
            worker = _SideSearch(self, len(self._workers) + 1, start)
            self._workers.append(worker)
            worker.thread.start()

    @property
    def searching(self) -> bool:
        """Return whether at least one of them searches now."""
        return any(worker.searching for worker in self._workers)

    @property
    def failed(self) -> bool:
        """Return whether the block will end with what somebody has raised whom plans are told."""
        return self._error is not None

    def wait(self) -> None:
        """Wait until all that have begun end, or the solve has a reason to."""
        while any(worker.under_way for worker in self._workers):
            if self.failed or self.solve_state.reason() is not None:
                break
            self._over.wait(_POLL_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        last = monotonic() + _PATIENCE_SECONDS
        for worker in self._workers:
            worker.thread.join(max(0.0, last - monotonic()))
        for worker in self._workers:
            if worker.searching and worker.thread.is_alive():
                _LOGGER.warning("search %d beside the solve does not answer: what it found last is lost", worker.stream)
            worker.end()
        for worker in self._workers:
            worker.thread.join(_PATIENCE_SECONDS)
        if self._error is not None:
            raise self._error

    def may_begin(self) -> bool:
        """Wait until it is time for a process to begin; return whether it should."""
        state = self.solve_state
        while not (self._begun.is_set() and state.seconds >= _START_SECONDS):
            if self._over.wait(_POLL_SECONDS):
                return False
        return not self._over.is_set() and (state.remaining is None or state.remaining >= _LEAST_SECONDS)

    def follow(self, worker: _SideSearch) -> None:
        """Begin a process and exchange news with it until either ends."""
        try:
            if self.may_begin():
                worker.under_way = True
                worker.run(worker.start(SearchWorker), self._task(worker.stream), self.solve_state, self._over)
        except LostCompanionError as error:
            if not self._over.is_set():
                _LOGGER.warning("search %d beside the solve is lost, which goes on without: %s", worker.stream, error)
        except Exception as error:  # noqa: BLE001 # as one of who receives the events, whom a better plan is told
            self._error = error
        finally:
            worker.searching = worker.under_way = False
            worker.end()

    def _task(self, stream: int) -> SearchTask:
        state = self.solve_state
        options = replace(state.options, time_limit=state.remaining, threads=1, engine_log=None)
        options = replace(options, gap=None, target=None, no_improvement=None)  # The solve looks at goals.
        known = state.name, state.operations, options, state.part, state.conditions
        only = self.first if stream == 1 else None
        return SearchTask(*known, state.proven._replace(deadlines=None), stream, only, self.held)


class _SideSearch:
    """One process, and the thread that follows it.

    `under_way`: whether there is a process, or one begins. `searching`: whether it has first plans, and moves follow.
    """

    def __init__(self, workers: SideSearches, stream: int, start: Callable[[Maker], Companion]) -> None:
        self.stream, self.start, self.under_way, self.searching = stream, start, False, False
        self._companion: Companion | None = None
        self._value: int | None = None
        self._bound = 0
        call = clock.in_context(lambda: workers.follow(self))
        self.thread = Thread(target=call, name=f"jigsaw-search-{stream}", daemon=True)

    def run(self, companion: Companion, task: SearchTask, solve_state: SolveState, over: Event) -> None:
        """Let it search and exchange news until either ends."""
        self._companion = companion
        companion.ask("begin", task, self._news(solve_state))
        ended = False
        while not ended:
            ended = over.wait(_POLL_SECONDS)
            news: SearchNews = companion.ask("exchange", self._news(solve_state))
            for record in news.moves:
                solve_state.credit(record)
            if news.best is not None:
                self._value = news.best[0] if self._value is None else min(self._value, news.best[0])
                solve_state.offer(news.best[1])
            if news.failure:
                raise LostCompanionError(news.failure)
            self.searching, ended = news.searching and not news.ended, ended or news.ended

    def end(self) -> None:
        """End the process, if there is one."""
        if self._companion is not None:
            self._companion.end()

    def _news(self, solve_state: SolveState) -> SearchNews:
        """Return what the process has not been told yet."""
        incumbent, proven, best, bound = solve_state.incumbent, solve_state.proven, None, None
        if incumbent is not None and (self._value is None or incumbent[0] < self._value):
            self._value, best = incumbent[0], incumbent
        if proven.value > self._bound:
            self._bound, bound = proven.value, proven._replace(deadlines=None)
        return SearchNews(best, bound)
