"""The parameters of the search: one typed dataclass a part, each field with its unit, its range and one sentence.

They are what is worth varying: shares of work, temperatures, sizes of neighbourhoods, and how moves are credited. Every
other number is a constant beside the line that uses it, with the reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from typing import Any, TypeVar

__all__ = ["FORMER", "SearchParams", "no_longer_tunable"]

T = TypeVar("T")

FORMER: Mapping[str, frozenset[str]] = {
    part: frozenset(names.split())
    for part, names in {
        "": "prices",
        "prices": "list_operation placed_worker balancing_step placement_step placement_operation sequence_operation "
        "assignment_step insertion_visit insertion_look insertion_operation engine seconds small_seconds",
        "driver": "fading least_floor idle_work",
        "opening": "patience steps compile_wait",
        "candidates": "sample remembered",
        "load_balancing": "most_worker_steps steps_between_looks constructions targets link_weights length_weight",
        "list_annealing": "most_steps least_priority most_priority brief_length longest",
        "sequence_annealing": "cyclic_operations most_operations cyclic_most_operations most_waits",
        "relocation": "placements repair_steps repair_operations repair_temperature change_price",
        "rebalance": "binding anew_shares steps_per_worker anew_steps_per_worker hot cold link_prices link_share "
        "sequence_share temperature anew_length longest",
        "order_insertion": "slice visits steps_per_job profile_share reach slack",
        "cp_repair": "periods windows most_readiness",
        "insertion": "step least_step most_step failures tries_per_job phases few most_unassigned best fit_blur "
        "length_weight work_weight",
        "group_insertion": "step failures tries joint_work sharings most_failed exchanges_per_group hot cold stages "
        "stage_steps_per_job steps_per_job reassignments_per_group pairs_at_once crowd_weight sample",
    }.items()
}
"""By part, parameters of the release before, which are constants now; what names them is told so, for one release."""


def no_longer_tunable(names: Iterable[str], stacklevel: int = 2) -> None:
    """Warn of former parameters that are ignored."""
    for name in names:
        message = f"{name} is no longer tunable, and is ignored; the next release refuses it"
        warnings.warn(message, FutureWarning, stacklevel=stacklevel + 1)


def _with_former(part: str = "") -> Callable[[type[T]], type[T]]:
    """Return what lets the class of a part take its former parameters."""

    def changed(kind: type[T]) -> type[T]:
        make: Callable[..., None] = kind.__init__

        @wraps(make)
        def init(self: T, *arguments: Any, **given: Any) -> None:
            former = sorted(FORMER[part].intersection(given))
            no_longer_tunable((f"{part}.{name}" if part else name for name in former), stacklevel=2)
            make(self, *arguments, **{name: value for name, value in given.items() if name not in former})

        kind.__init__ = init  # type: ignore[assignment]
        return kind

    return changed


def parameter(default: T, unit: str, text: str, least: float = 0, most: float = 1e9) -> T:
    """Return a field of a parameter class."""
    value: T = field(default=default, metadata={"unit": unit, "text": text, "least": least, "most": most})
    return value


@_with_former("driver")
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParams:
    """The adaptive large neighbourhood search driver."""

    patience: int = parameter(12, "moves", "Moves without a better plan after which a search without a limit ends.", 1)
    decay: float = parameter(0.5, "share", "Weight of the past when a move's gains and work are averaged.", 0, 1)
    floor: float = parameter(0.1, "share", "Of all gains, what every move is credited with, so that it comes again.")
    longest: float = parameter(30.0, "factor", "How much longer annealing and CP-SAT go on in vain, at most.", 1)


@_with_former("opening")
@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningParams:
    """Placements constructed before the first move."""

    work: float = parameter(0.1, "deterministic seconds", "Work of all of them.")


@_with_former("candidates")
@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateParams:
    """Sets of GPUs that are tried for a job."""

    best: int = parameter(3, "sets", "The least loaded servers or blocks that are tried, and one of the others.", 1)
    blur: float = parameter(0.5, "share", "By how much chance blurs loads in half of all cases.")


@_with_former("load_balancing")
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancingParams:
    """Simulated annealing of a placement by the loads of GPUs and links."""

    steps_per_job: int = parameter(40, "steps", "Steps for each job.", 1)
    temperatures: tuple[float, ...] = parameter((0.1, 1.0), "cost", "Initial temperatures; one is drawn.")
    profile_share: float = parameter(0.1, "share", "How often a job changes its level profile.", 0, 1)


@_with_former("list_annealing")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnnealingParams:
    """Simulated annealing of placement, priorities and release offsets (moves restart and intensify)."""

    operations: int = parameter(1_200_000, "operations", "Blocks and transfers scheduled in one annealing.", 1)
    temperatures: tuple[float, ...] = parameter((0.01, 0.003, 0.02), "share", "Objective lost at first; one is drawn.")
    placement_share: float = parameter(0.6, "share", "How often a step changes the placement.", 0, 1)
    focus_share: float = parameter(0.4, "share", "How often it moves a job beside the one that ends last.", 0, 1)
    brief_share: float = parameter(0.65, "share", "How often a new placement is annealed briefly.", 0, 1)


@_with_former("sequence_annealing")
@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceAnnealingParams:
    """Simulated annealing of the sequence of all operations at a placement."""

    operations: int = parameter(4_000_000, "operations", "Operations evaluated in one annealing.", 1)
    temperatures: tuple[float, ...] = parameter(
        (0.003, 0.001, 0.0003), "share", "Objective lost at first; one is drawn."
    )


@_with_former("relocation")
@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationParams:
    """Simulated annealing of placements while the sequence is carried along."""

    temperatures: tuple[float, ...] = parameter((0.003, 0.01, 0.03), "share", "Objective lost at first; one is drawn.")
    work: float = parameter(0.4, "deterministic seconds", "Work after which no further annealing begins.")


@_with_former("rebalance")
@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceParams:
    """Changes of what binds in a plan: loads of GPUs and links, or jobs of its critical circuit (move rebalance)."""

    shares: tuple[float, ...] = parameter(
        (0.01, 0.03, 0.1, 0.2), "share", "How far the largest load falls to the mean; one is drawn.", 0, 1
    )
    work: float = parameter(0.5, "deterministic seconds", "Work after which no further change is tried.")


@_with_former("order_insertion")
@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInsertionParams:
    """Simulated annealing of the order in which jobs are inserted."""

    temperatures: tuple[float, ...] = parameter((0.002, 0.001), "share", "Objective lost at first; one is drawn.")


@_with_former("cp_repair")
@dataclass(frozen=True, slots=True, kw_only=True)
class CpRepairParams:
    """Large neighbourhoods: some jobs timed anew by CP-SAT."""

    operations: tuple[int, ...] = parameter(
        (80, 200, 700), "operations", "Blocks and transfers timed anew; one is drawn.", 1
    )
    work: float = parameter(0.03, "deterministic seconds", "Work of a call at first.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpPlacementParams:
    """All jobs placed at once by CP-SAT."""

    work: float = parameter(0.5, "deterministic seconds", "Work of one placement.")


@_with_former("insertion")
@dataclass(frozen=True, slots=True, kw_only=True)
class InsertionParams:
    """Jobs inserted modulo a shorter period (move best_fit_insertion)."""

    slice: float = parameter(
        0.1, "share", "Share of the limits after which the move is cut off without a success, at first.", 1e-6, 1
    )
    most_ejected: int = parameter(10, "jobs", "Jobs ejected at once, at most.", 1)
    blur: float = parameter(2.0, "factor", "By how much chance blurs the order of insertion.", 1)


@_with_former("group_insertion")
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInsertionParams:
    """Jobs assigned to groups of servers, and inserted group by group."""

    slice: float = parameter(
        0.2, "share", "Share of the limits after which the move is cut off without a success, at first.", 1e-6, 1
    )


@_with_former("prices")
class PriceParams:
    """Hold nothing: what work counts as is no longer tunable. The class stays for one release."""


@_with_former()
@dataclass(frozen=True, slots=True)
class SearchParams:
    """All parameters of the search.

    Parameters
    ----------
    without
        Names of moves that are left out.
    driver, opening, candidates, load_balancing, list_annealing, sequence_annealing, relocation, cp_repair
        Parameters of each part; see its class.
    rebalance, order_insertion, cp_placement, insertion, group_insertion
        Likewise.
    """

    without: tuple[str, ...] = ()
    _: KW_ONLY
    driver: DriverParams = field(default_factory=DriverParams)
    opening: OpeningParams = field(default_factory=OpeningParams)
    candidates: CandidateParams = field(default_factory=CandidateParams)
    load_balancing: LoadBalancingParams = field(default_factory=LoadBalancingParams)
    list_annealing: ListAnnealingParams = field(default_factory=ListAnnealingParams)
    sequence_annealing: SequenceAnnealingParams = field(default_factory=SequenceAnnealingParams)
    relocation: RelocationParams = field(default_factory=RelocationParams)
    rebalance: RebalanceParams = field(default_factory=RebalanceParams)
    order_insertion: OrderInsertionParams = field(default_factory=OrderInsertionParams)
    cp_repair: CpRepairParams = field(default_factory=CpRepairParams)
    cp_placement: CpPlacementParams = field(default_factory=CpPlacementParams)
    insertion: InsertionParams = field(default_factory=InsertionParams)
    group_insertion: GroupInsertionParams = field(default_factory=GroupInsertionParams)
