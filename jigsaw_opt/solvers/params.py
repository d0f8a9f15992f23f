"""The parameters of the search: one typed dataclass a part, each field with its unit, its range and one sentence.

They are what is worth varying: shares of work, temperatures, sizes of neighbourhoods, and how moves are credited. Every
other number is a constant beside the line that uses it, with the reason.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

T = TypeVar("T")


def parameter(default: T, unit: str, text: str, least: float = 0, most: float = 10**9) -> T:
    """Return a field of a parameter class."""
    value: T = field(default=default, metadata={"unit": unit, "text": text, "least": least, "most": most})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParams:
    """The adaptive large neighbourhood search driver."""

    patience: int = parameter(12, "moves", "Moves without a better plan after which a search without a limit ends.", 1)
    decay: float = parameter(0.5, "share", "Weight of the past when a move's gains and work are averaged.", 0, 1)
    floor: float = parameter(0.1, "share", "Of all gains, what every move is credited with, so that it comes again.")
    longest: float = parameter(30.0, "factor", "How much longer annealing goes on in vain, at most.", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningParams:
    """Placements constructed before the first move."""

    work: float = parameter(0.1, "deterministic seconds", "Work of all of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateParams:
    """Sets of GPUs that are tried for a job."""

    best: int = parameter(3, "sets", "The least loaded servers or blocks that are tried, and one of the others.", 1)
    blur: float = parameter(0.5, "share", "By how much chance blurs loads in half of all cases.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancingParams:
    """Simulated annealing of a placement by the loads of GPUs and links."""

    steps_per_job: int = parameter(40, "steps", "Steps for each job.", 1)
    temperatures: tuple[float, ...] = parameter((0.1, 1.0), "cost", "Initial temperatures; one is drawn.")
    profile_share: float = parameter(0.1, "share", "How often a job changes its level profile.", 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnnealingParams:
    """Simulated annealing of placement, priorities and release offsets (moves restart and intensify)."""

    operations: int = parameter(1_200_000, "operations", "Blocks and transfers scheduled in one annealing.", 1)
    temperatures: tuple[float, ...] = parameter((0.01, 0.003, 0.02), "share", "Objective lost at first; one is drawn.")
    placement_share: float = parameter(0.6, "share", "How often a step changes the placement.", 0, 1)
    focus_share: float = parameter(0.4, "share", "How often it moves a job beside the one that ends last.", 0, 1)
    brief_share: float = parameter(0.65, "share", "How often a new placement is annealed briefly.", 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceAnnealingParams:
    """Simulated annealing of the sequence of all operations at a placement."""

    operations: int = parameter(4_000_000, "operations", "Operations evaluated in one annealing.", 1)
    temperatures: tuple[float, ...] = parameter(
        (0.003, 0.001, 0.0003), "share", "Objective lost at first; one is drawn."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationParams:
    """Simulated annealing of placements while the sequence is carried along."""

    temperatures: tuple[float, ...] = parameter((0.003, 0.01, 0.03), "share", "Objective lost at first; one is drawn.")
    work: float = parameter(0.4, "deterministic seconds", "Work after which no further annealing begins.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInsertionParams:
    """Simulated annealing of the order in which jobs are inserted."""

    temperatures: tuple[float, ...] = parameter((0.002, 0.001), "share", "Objective lost at first; one is drawn.")


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertionParams:
    """Jobs inserted modulo a shorter period after each other, with ruin and recreate."""

    most_ejected: int = parameter(10, "jobs", "Jobs ejected at once, at most.", 1)
    blur: float = parameter(2.0, "factor", "By how much chance blurs the order of insertion.", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInsertionParams:
    """Jobs assigned to groups of servers, and inserted group by group."""

    slice: float = parameter(
        0.2, "share", "Share of the limits after which the move is cut off without a success, at first.", 1e-6, 1
    )


@dataclass(frozen=True, slots=True)
class SearchParams:
    """All parameters of the search.

    Parameters
    ----------
    without
        Names of moves that are left out.
    driver, opening, candidates, load_balancing, list_annealing, sequence_annealing, relocation
        Parameters of each part; see its class.
    order_insertion, insertion, group_insertion
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
    order_insertion: OrderInsertionParams = field(default_factory=OrderInsertionParams)
    insertion: InsertionParams = field(default_factory=InsertionParams)
    group_insertion: GroupInsertionParams = field(default_factory=GroupInsertionParams)
