"""Events of a solve under way, whose plans are made and checked when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable

from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.result import Event

__all__ = ["LiveEvent"]


class LiveEvent(Event):
    """An event whose plan can be asked for, from any thread."""

    _obtain: Callable[[], Plan | None]
    _plan: Plan | None = None

    @classmethod
    def of(cls, event: Event, obtain: Callable[[], Plan | None]) -> LiveEvent:
        """Return an event with a plan.

        `obtain`: makes and checks the plan; None where there is none, or no time to check it.
        """
        live = cls(*event)
        live._obtain = obtain
        return live

    @property
    def plan(self) -> Plan | None:
        """Return the best plan at this event, made and checked when it is first asked for."""
        if self._plan is None:
            self._plan = self._obtain()
        return self._plan
