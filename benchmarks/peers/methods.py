"""The methods that are compared: ours, and what a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import highs_ilp
import job_shops
import list_scheduling
import order_search
import plain_cpsat
import pyjobshop_peer
from attempt import Attempt

from jigsaw_opt.problem import Instance, Job
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers import registry
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event
from jigsaw_opt.solvers.solve import solve

OURS = "auto"
"""The method that the others are set against."""


@dataclass(frozen=True, slots=True)
class Method:
    """One column of the table: what fills an attempt, why it does not take an instance, whether it is a peer or ours.

    `engines` are modules that are imported before the clock starts, for every method alike. Of jobs with a task graph a
    peer takes job shops alone, and only where it has `solve_shop`.
    """

    solve: Callable[[Attempt], None]
    unsupported: Callable[[Instance], str | None]
    engines: tuple[str, ...] = ()
    peer: bool = True
    solve_shop: Callable[[Attempt], None] | None = None

    def refusal(self, instance: Instance) -> str | None:
        """Why it does not take an instance, or None."""
        if not self.peer or all(isinstance(job, Job) for job in instance.jobs):
            return self.unsupported(instance)
        return "jobs with a task graph" if self.solve_shop is None else job_shops.unsupported(instance)

    def run(self, attempt: Attempt) -> None:
        """Fill an attempt."""
        (self.solve_shop if self.solve_shop and attempt.operations.task_graphs else self.solve)(attempt)

    def missing(self) -> str | None:
        """The engine that is not installed, or None."""
        return next((name for name in self.engines if find_spec(name.partition(".")[0]) is None), None)

    def warm_up(self) -> None:
        """Import the engines, and for ours the registered solvers."""
        for name in self.engines:
            import_module(name)
        for name in () if self.peer else registry.names():
            registry.find(name)


def _ours(name: str) -> Callable[[Attempt], None]:
    def run(attempt: Attempt) -> None:
        def note(event: Event) -> None:
            last = attempt.trajectory[-1][1] if attempt.trajectory else None
            if event.objective is not None and (last is None or event.objective < last):
                attempt.trajectory.append((attempt.elapsed, event.objective))

        options = Options(time_limit=attempt.time_limit, threads=attempt.threads, seed=attempt.seed)
        result = solve(attempt.operations.instance, name, options, on_event=note)
        attempt.objective, attempt.bound, attempt.note = result.objective, result.bound, result.stopped_by
        if result.plan is not None:
            attempt.best = Timetable.of(result.plan.jobs, result.plan.period_us)

    return run


def _every(instance: Instance) -> str | None:
    return None


_CPSAT = ("ortools.sat.python.cp_model",)
_SHOP = ("pyjobshop", "pyjobshop.solvers.ortools", "networkx")

METHODS: Mapping[str, Method] = {
    OURS: Method(_ours(OURS), _every, (*_CPSAT, "networkx", "numpy"), peer=False),
    "greedy": Method(_ours("greedy"), _every, ("networkx",), peer=False),
    "list": Method(list_scheduling.solve, list_scheduling.unsupported, ("networkx",)),
    "order-search": Method(order_search.solve, order_search.unsupported, ("networkx",)),
    "plain-cpsat": Method(
        plain_cpsat.solve, plain_cpsat.unsupported, (*_CPSAT, "networkx"), solve_shop=job_shops.solve_plainly
    ),
    "highs-ilp": Method(highs_ilp.solve, highs_ilp.unsupported, ("highspy", "networkx")),
    "pyjobshop": Method(
        pyjobshop_peer.solve, pyjobshop_peer.unsupported, _SHOP, solve_shop=job_shops.solve_by_pyjobshop
    ),
    "pyjobshop-placed": Method(pyjobshop_peer.solve_placed, pyjobshop_peer.unsupported_placed, _SHOP),
}
"""All methods by name, ours first."""
