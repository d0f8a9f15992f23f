"""What a caller may ask of a solver."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf
from threading import Event as Flag
from typing import Any, TypedDict

from jigsaw_opt.arguments import require_fields, typed
from jigsaw_opt.errors import Problem, UsageError, argument
from jigsaw_opt.solvers.engines.parameters import Parameter
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.text import suggestion

MOST_THREADS = 1_000
"""More threads than this no machine has cores for, and engines would try to start them all."""

LIMITS = (
    *("time_limit", "gap", "target", "no_improvement", "work_limit", "seed", "threads"),
    *("without_bounds", "listed", "survivable", "cancel"),
)
"""Options that a method keeps to unless it says otherwise: also one that ends sooner, or draws nothing, keeps to them,
and `SolveState` judges plans for all."""
_MOST = 10**15
"""Limits are at most so much, beyond which floats leave out whole numbers; infinity stands for none."""
_GRACE_SHARE, _GRACE_SECONDS = 0.025, 0.4
"""Half of what a solve may take beyond its limit: the other half is for checking and writing."""


class GivenOptions(TypedDict, total=False):
    """Options by keyword, as `solve` takes them; see `Options`."""

    time_limit: float | None
    gap: float | None
    target: int | None
    no_improvement: float | None
    work_limit: float | None
    seed: int
    threads: int
    ray: str | None
    engine_parameters: Mapping[str, Parameter]
    engine_log: Callable[[str], None] | int | None
    params: SearchParams | None
    without_bounds: Collection[str]
    listed: bool
    survivable: bool
    cancel: Flag


@dataclass(frozen=True, slots=True)
class Options:
    """Limits, seed and cores of one solve.

    Parameters
    ----------
    time_limit
        Seconds of wall-clock time, or None.
    gap
        Stop at this relative gap ``(objective - bound) / objective``, or None.
    target
        Stop at a plan whose objective is at most this, or None.
    no_improvement
        Stop after so many seconds without a better plan, or None.
    work_limit
        Limit in the engine's deterministic units (the same on every machine), or None.
    seed
        Seed of everything that is random.
    threads
        Number of threads, at most `MOST_THREADS`; with one, the same input and seed give the same plan.
    ray
        Address of a Ray cluster, as ``10.0.0.1:6379``, or ``auto`` for the one that runs here: each of its
        cores searches as well. None for this machine alone.
    engine_parameters
        Parameters of the engine by its own names, in the place of those that the solver sets: fields of
        ``SatParameters`` for all models of CP-SAT but those of bounds, options of HiGHS.
    engine_log
        Receives each line of the engine's log, in threads of the engine; or a level of `logging` at which the lines
        are logged to ``jigsaw_opt.engine``; or None.
    params
        Parameters of the search, or None for their defaults.
    without_bounds
        Names of relaxations that are left out, to see what each earns (``jigsaw_opt.solvers.bounds.names`` lists them).
    listed
        Whether only plans are taken that list all iterations, as all methods but ``auto`` and ``phased`` make anyway.
    survivable
        Whether only plans are taken that outlive the failure of any one link: no job stops, and with the order kept all
        guarantees are kept. ``phased`` makes none, and they start from no plan. Bounds stay those of all plans.
    cancel
        Set by another thread or a signal handler, it stops the solve and keeps the best plan.

    Raises
    ------
    UsageError
        A limit that is no number, or out of range.
    """

    time_limit: float | None = None
    gap: float | None = None
    target: int | None = None
    no_improvement: float | None = None
    work_limit: float | None = None
    seed: int = 0
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    ray: str | None = None
    engine_parameters: Mapping[str, Parameter] = field(default_factory=dict)
    engine_log: Callable[[str], None] | int | None = None
    params: SearchParams | None = None
    without_bounds: Collection[str] = ()
    listed: bool = False
    survivable: bool = False
    cancel: Flag = field(default_factory=Flag, compare=False)

    def __copy__(self) -> Options:
        """Return one with the same flag to cancel."""
        return replace(self)

    def __reduce__(self) -> tuple[Callable[..., Options], tuple[dict[str, Any], bool]]:
        """Tell how to make it anew, in another process or as a deep copy, with a flag of its own that is set alike."""
        others = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "cancel"}
        return _made_anew, (others, self.cancel.is_set())

    def __post_init__(self) -> None:
        require_fields(self)
        wrong = [
            Problem(name, f"{argument(name)} is at least 0 and at most {_MOST}, not {value}", code="out-of-range")
            for name in ("time_limit", "gap", "no_improvement", "work_limit")
            if (value := getattr(self, name)) is not None and not (0 <= value <= _MOST or value == inf)
        ]
        if not 1 <= self.threads <= MOST_THREADS:
            told = f"{argument('threads')} lies between 1 and {MOST_THREADS}, not {self.threads}"
            wrong.append(Problem("threads", told, code="out-of-range"))
        if not 0 <= self.seed < 2**31:
            told = f"{argument('seed')} lies between 0 and 2^31 - 1, not {self.seed}"
            wrong.append(Problem("seed", told, code="out-of-range"))
        if wrong:
            raise UsageError.of(wrong)
        for name in ("time_limit", "no_improvement", "work_limit"):
            object.__setattr__(self, name, None if getattr(self, name) == inf else getattr(self, name))
        for name in ("seed", "threads"):  # Numbers of numpy are too narrow for what is made of them.
            object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def given(self) -> tuple[str, ...]:
        """Return the names of the options that are not as they are by default; never those of the flag to cancel."""
        default = Options()
        return tuple(
            field.name
            for field in fields(self)
            if field.compare and getattr(self, field.name) != getattr(default, field.name)
        )

    @property
    def engine_listener(self) -> Callable[[str], None] | None:
        """Return what receives the engine's log, one line or more at a time; None where nobody wants it."""
        log = self.engine_log
        if log is None:
            return None
        tell = partial(logging.getLogger("jigsaw_opt.engine").log, log, "%s") if isinstance(log, int) else log

        def listen(text: str) -> None:
            for line in text.splitlines():
                tell(line)

        return listen

    @property
    def grace(self) -> float:
        """Seconds for which what is under way at the time limit or a cancel may still go on.

        Checking and writing the plan may take as long again, so a limit of ``t`` seconds is kept within
        ``0.05 t + 0.8``.
        """
        return _GRACE_SECONDS + _GRACE_SHARE * (self.time_limit or 0.0)

    @property
    def limited(self) -> bool:
        """Return whether time or work is limited."""
        return self.time_limit is not None or self.work_limit is not None

    @property
    def clocked(self) -> bool:
        """Return whether a clock alone limits the solve, so that plans may differ from run to run."""
        return self.time_limit is not None and self.work_limit is None


def _made_anew(others: dict[str, Any], cancelled: bool) -> Options:
    made = Options(**others)
    if cancelled:
        made.cancel.set()
    return made


@typed
def options_of(options: Options | None, given: Mapping[str, Any]) -> Options:
    """Return options of an object, of keywords, or of both.

    `options`: the object; None for the defaults. `given`: options by keyword, in the place of the object's defaults.
    """
    base, known = options or Options(), [field.name for field in fields(Options)]
    hints = ((name, suggestion(name, known)) for name in given if name not in known)
    wrong = [
        Problem(name, f"there is no option {name!r}" + (hint and f"; {hint}"), code="unknown-option")
        for name, hint in hints
    ]
    twice = (name for name in given if name in base.given or (name == "cancel" and options is not None))
    told = "is given twice: in the options and by keyword"
    wrong += (Problem(name, f"{name} {told}", code="not-together") for name in twice)
    try:
        made = replace(base, **{name: given[name] for name in given if name in known}) if given else base
    except UsageError as error:
        raise UsageError.of([*wrong, *error.problems]) from None
    if wrong:
        raise UsageError.of(wrong)
    return made
