"""The parameters of the search: one typed dataclass a part, each field with its unit, its range and one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

__all__ = ["SearchParams"]

T = TypeVar("T")


def parameter(default: T, unit: str, text: str, least: float = 0, most: float = 1e9) -> T:
    """Return a field of a parameter class.

    Parameters
    ----------
    default
        Its default.
    unit
        Its unit, in words.
    text
        One sentence that says what it is.
    least, most
        The range that it lies in.
    """
    value: T = field(default=default, metadata={"unit": unit, "text": text, "least": least, "most": most})
    return value


@dataclass(frozen=True, slots=True)
class DriverParams:
    """The adaptive large neighbourhood search driver."""

    patience: int = parameter(12, "moves", "Moves without a better plan after which a search without a limit ends.", 1)
    decay: float = parameter(0.5, "share", "Weight of the past when a move's gains and work are averaged.", 0, 1)
    floor: float = parameter(0.1, "share", "Of all gains, what every move is credited with, so that it comes again.")
    fading: float = parameter(0.8, "share", "What a call in vain leaves of that credit.", 0, 1)
    least_floor: float = parameter(0.1, "share", "What any number of them leaves.", 0, 1)
    longest: float = parameter(30.0, "factor", "How much longer annealing and CP-SAT go on in vain, at most.", 1)
    idle_work: float = parameter(10.0, "work", "What a move that found nothing to do counts as.")


@dataclass(frozen=True, slots=True)
class OpeningParams:
    """Placements constructed before the first move."""

    work: float = parameter(0.1, "deterministic seconds", "Work of all of them.")
    patience: int = parameter(25, "placements", "Placements without a better plan after which it ends.", 1)
    steps: int = parameter(60, "steps", "Steps of annealing of the best of them.")
    compile_wait: float = parameter(
        2.0, "seconds", "Longest wait for compiled functions, and at most half of the time."
    )


@dataclass(frozen=True, slots=True)
class PriceParams:
    """What work counts as under a work limit, and how long the engine may take for it."""

    list_operation: float = parameter(4e-7, "deterministic seconds", "A block or transfer of a list schedule.")
    placed_worker: float = parameter(
        2e-5, "deterministic seconds", "A worker that is placed when placements are constructed."
    )
    balancing_step: float = parameter(6e-5, "deterministic seconds", "A step of load balancing.")
    placement_step: float = parameter(1.5e-7, "deterministic seconds", "A step of annealing where workers are.")
    placement_operation: float = parameter(
        1e-6, "deterministic seconds", "A block or transfer of a plan of which the placement is annealed."
    )
    sequence_operation: float = parameter(
        2e-8, "deterministic seconds", "An operation of a sequence; thrice if cyclic."
    )
    assignment_step: float = parameter(4e-7, "deterministic seconds", "A step of annealing an assignment to groups.")
    insertion_visit: float = parameter(
        1.5e-7, "deterministic seconds", "A block or transfer that is tried when jobs are inserted in order."
    )
    insertion_look: float = parameter(
        3e-6, "deterministic seconds", "A block or transfer for which room is looked for modulo a period."
    )
    insertion_operation: float = parameter(1e-5, "deterministic seconds", "A block or transfer that is inserted.")
    engine: float = parameter(3.0, "deterministic seconds", "A deterministic second of CP-SAT.")
    seconds: float = parameter(6.0, "seconds", "Time of the clock for a deterministic second of CP-SAT.")
    small_seconds: float = parameter(20.0, "seconds", "The same for small models, which mostly are in presolve.")

    def sequence_operation_on(self, horizon: str) -> float:
        """Price of an operation of a sequence on a horizon."""
        return 3 * self.sequence_operation if horizon == "cyclic" else self.sequence_operation


@dataclass(frozen=True, slots=True)
class CandidateParams:
    """Sets of GPUs that are tried for a job."""

    best: int = parameter(3, "sets", "The least loaded servers or blocks that are tried, and one of the others.", 1)
    sample: int = parameter(16, "sets", "Servers or blocks that are looked at.", 1)
    blur: float = parameter(0.5, "share", "By how much chance blurs loads in half of all cases.")
    remembered: int = parameter(10_000, "assignments", "Assignments of jobs to GPUs that are kept in memory.", 1)


@dataclass(frozen=True, slots=True)
class LoadBalancingParams:
    """Simulated annealing of a placement by the loads of GPUs and links."""

    steps_per_job: int = parameter(40, "steps", "Steps for each job.", 1)
    most_worker_steps: int = parameter(100_000, "steps × workers", "Steps by the mean width of a job, at most.", 1)
    steps_between_looks: int = parameter(50, "steps", "Steps between two looks at the limits.", 1)
    constructions: int = parameter(5, "orders", "Orders in which it is tried to find room for all jobs.", 1)
    targets: tuple[float, ...] = parameter((1.0, 1.03, 1.08), "least loads", "Target loads; one is drawn.", 0.01)
    temperatures: tuple[float, ...] = parameter((0.1, 1.0), "cost", "Initial temperatures; one is drawn.")
    link_weights: tuple[float, ...] = parameter((1.0, 10.0, 50.0), "cost", "Prices of a link's time; one is drawn.")
    length_weight: float = parameter(20.0, "cost", "Price of a job that is longer than the target.")
    profile_share: float = parameter(0.1, "share", "How often a job changes its level profile.", 0, 1)


@dataclass(frozen=True, slots=True)
class ListAnnealingParams:
    """Simulated annealing of placement, priorities and release offsets (moves restart and intensify)."""

    operations: int = parameter(1_200_000, "operations", "Blocks and transfers scheduled in one annealing.", 1)
    most_steps: int = parameter(5_000, "steps", "Steps of one annealing, at most.", 1)
    temperatures: tuple[float, ...] = parameter((0.01, 0.003, 0.02), "share", "Objective lost at first; one is drawn.")
    placement_share: float = parameter(0.6, "share", "How often a step changes the placement.", 0, 1)
    focus_share: float = parameter(0.4, "share", "How often it moves a job beside the one that ends last.", 0, 1)
    least_priority: float = parameter(0.3, "factor", "Least factor on a priority.")
    most_priority: float = parameter(1.7, "factor", "Largest factor on a priority.")
    brief_share: float = parameter(0.65, "share", "How often a new placement is annealed briefly.", 0, 1)
    brief_length: float = parameter(0.5, "share", "How long that is.", 0, 1)
    longest: float = parameter(4.0, "factor", "How much longer an annealing becomes in vain, on the finite horizon.", 1)


@dataclass(frozen=True, slots=True)
class SequenceAnnealingParams:
    """Simulated annealing of the sequence of all operations at a placement."""

    operations: int = parameter(4_000_000, "operations", "Operations evaluated in one annealing.", 1)
    cyclic_operations: int = parameter(1_000_000, "operations", "The same on a cyclic horizon.", 1)
    temperatures: tuple[float, ...] = parameter(
        (0.003, 0.001, 0.0003), "share", "Objective lost at first; one is drawn."
    )
    most_operations: int = parameter(1_000, "operations", "Up to so many operations, the move intensify is left out.")
    cyclic_most_operations: int = parameter(
        400, "operations", "Up to so many, insertions and cp_repair are left out as well."
    )
    most_waits: int = parameter(2_000_000, "pairs", "Pairs of a block and a transfer above which it takes too long.")

    def operations_on(self, horizon: str) -> int:
        """Operations evaluated in one annealing on a horizon."""
        return self.cyclic_operations if horizon == "cyclic" else self.operations

    def most_operations_on(self, horizon: str) -> int:
        """Up to how many operations the sequence is annealed instead of other moves."""
        return self.cyclic_most_operations if horizon == "cyclic" else self.most_operations


@dataclass(frozen=True, slots=True)
class RelocationParams:
    """Simulated annealing of placements while the sequence is carried along."""

    placements: int = parameter(300, "placements", "Placements tried in one annealing.", 1)
    temperatures: tuple[float, ...] = parameter((0.003, 0.01, 0.03), "share", "Objective lost at first; one is drawn.")
    work: float = parameter(0.4, "deterministic seconds", "Work after which no further annealing begins.")
    repair_steps: int = parameter(200, "steps", "Steps that repair the sequence at a placement.", 1)
    repair_operations: int = parameter(2_000_000, "operations", "Operations evaluated for that, at most.", 1)
    repair_temperature: float = parameter(0.001, "share", "Share of the objective that these may lose at first.")
    change_price: int = parameter(
        10_000, "operations", "Operations evaluated in the time of a change of the placement."
    )


@dataclass(frozen=True, slots=True)
class RebalanceParams:
    """Changes of what binds in a plan: loads of GPUs and links, or jobs of its critical circuit (move rebalance)."""

    binding: float = parameter(0.995, "share", "Share of the objective from which on a load binds.", 0, 1)
    shares: tuple[float, ...] = parameter(
        (0.01, 0.03, 0.1, 0.2), "share", "How far the largest load falls to the mean; one is drawn.", 0, 1
    )
    anew_shares: tuple[float, ...] = parameter(
        (0.5, 0.8, 0.9, 0.95), "share", "The same where all jobs are then scheduled anew; one is drawn.", 0, 1
    )
    steps_per_worker: int = parameter(30, "steps", "Steps of annealing the placement for each worker.", 1)
    anew_steps_per_worker: int = parameter(300, "steps", "The same where all jobs are then scheduled anew.", 1)
    hot: float = parameter(2e-6, "squared share", "By how much squared excesses may well rise at first.", 1e-12)
    cold: float = parameter(1e-6, "squared share", "By how much they may in the end.", 1e-12)
    link_prices: tuple[float, ...] = parameter(
        (0.03, 0.1, 0.3), "squared share", "Prices of the load of a link by itself; one is drawn."
    )
    link_share: float = parameter(0.97, "share", "Target load of a link, as a share of that of a GPU.", 0.01, 1)
    sequence_share: float = parameter(0.5, "share", "Of an annealing of the sequence, how much follows each change.")
    temperature: float = parameter(0.001, "share", "Share of the objective that this may lose at first.")
    anew_length: float = parameter(4.0, "factor", "How much longer the sequence is annealed where it is a new one.")
    work: float = parameter(0.5, "deterministic seconds", "Work after which no further change is tried.")
    longest: float = parameter(8.0, "factor", "How much longer both go on in vain, at most.", 1)


@dataclass(frozen=True, slots=True)
class OrderInsertionParams:
    """Simulated annealing of the order in which jobs are inserted."""

    slice: float = parameter(0.2, "share", "Share of the limits after which an annealing is cut off.", 1e-6, 1)
    visits: int = parameter(5_000_000, "operations", "Blocks and transfers tried in one annealing, at most.", 1)
    steps_per_job: int = parameter(300, "steps", "Steps of one annealing for each job, at most.", 1)
    temperatures: tuple[float, ...] = parameter((0.002, 0.001), "share", "Objective lost at first; one is drawn.")
    profile_share: float = parameter(0.3, "share", "How often a job changes its level profile.", 0, 1)
    reach: float = parameter(0.1, "share", "Mean distance to a place nearby, as a share of all jobs.", 0, 1)
    slack: float = parameter(
        0.001, "share", "What the objective of the first jobs may lose beyond all jobs before insertion is given up."
    )


@dataclass(frozen=True, slots=True)
class CpRepairParams:
    """Large neighbourhoods: some jobs timed anew by CP-SAT."""

    operations: tuple[int, ...] = parameter(
        (80, 200, 700), "operations", "Blocks and transfers timed anew; one is drawn.", 1
    )
    work: float = parameter(0.03, "deterministic seconds", "Work of a call at first.")
    periods: int = parameter(4, "periods", "Periods tried in vain on a cyclic horizon.", 1)
    windows: int = parameter(12, "windows", "Windows of time that say which jobs are close to one another.", 1)
    most_readiness: int = parameter(500_000, "conditions", "Conditions of readiness above which no model is built.")


@dataclass(frozen=True, slots=True)
class CpPlacementParams:
    """All jobs placed at once by CP-SAT."""

    work: float = parameter(0.5, "deterministic seconds", "Work of one placement.")


@dataclass(frozen=True, slots=True)
class InsertionParams:
    """Jobs inserted modulo a shorter period (move best_fit_insertion)."""

    slice: float = parameter(
        0.1, "share", "Share of the limits after which the move is cut off without a success, at first.", 1e-6, 1
    )
    step: float = parameter(0.2, "share", "First step down, as a share of the room between bound and objective.", 0, 1)
    least_step: float = parameter(0.01, "share", "After this step in vain, it begins with the first again.", 0, 1)
    most_step: float = parameter(0.5, "share", "Largest step.", 0, 1)
    failures: int = parameter(2, "periods", "Periods tried in vain until another move is made.", 1)
    tries_per_job: int = parameter(4, "tries", "Fruitless tries of ruin and recreate for each job.")
    phases: int = parameter(24, "phases", "Phases of the period that are tried for a job.", 1)
    most_ejected: int = parameter(10, "jobs", "Jobs ejected at once, at most.", 1)
    few: int = parameter(3, "jobs", "So many jobs may be left unassigned on the way.")
    most_unassigned: float = parameter(
        0.25, "share", "With a larger share of the jobs unassigned, the period is given up.", 0, 1
    )
    blur: float = parameter(2.0, "factor", "By how much chance blurs the order of insertion.", 1)
    best: int = parameter(4, "sets", "Best-fit server sets that a job is offered.", 1)
    fit_blur: float = parameter(0.3, "periods", "By how much chance blurs how well a job fits.")
    length_weight: float = parameter(3.0, "weight", "Weight of a job's length there when fits are compared.")
    work_weight: float = parameter(0.1, "weight", "Weight of the load of GPUs.")


@dataclass(frozen=True, slots=True)
class GroupInsertionParams:
    """Jobs assigned to groups of servers, and inserted group by group."""

    slice: float = parameter(
        0.2, "share", "Share of the limits after which the move is cut off without a success, at first.", 1e-6, 1
    )
    step: float = parameter(0.65, "share", "First step down, as a share of the room between bound and objective.", 0, 1)
    failures: int = parameter(4, "periods", "Periods tried in vain until another move is made.", 1)
    tries: int = parameter(30, "tries", "Fruitless tries of ruin and recreate in a group.")
    joint_work: float = parameter(0.015, "deterministic seconds", "Work of CP-SAT for the wide jobs of a group.")
    sharings: int = parameter(
        40, "tries", "How often a pair of groups reassigns its jobs to come within the period.", 1
    )
    most_failed: float = parameter(
        0.75, "share", "With more groups than this in which some jobs find no room, the period is given up.", 0, 1
    )
    exchanges_per_group: int = parameter(4, "exchanges", "Fruitless exchanges for each group.", 1)
    hot: float = parameter(0.1, "squared share", "Temperature at which any job may go anywhere.", 1e-12)
    cold: float = parameter(1e-5, "squared share", "Temperature at which nothing changes any more.", 1e-12)
    stages: int = parameter(10, "stages", "Stages of the annealing of all jobs.", 1)
    stage_steps_per_job: int = parameter(500, "steps", "Steps of a stage for each job.", 1)
    steps_per_job: int = parameter(40, "steps", "Steps for each job when two groups reassign theirs.", 1)
    reassignments_per_group: int = parameter(40, "calls", "Reassignments for each group, at most.", 1)
    pairs_at_once: int = parameter(10, "pairs", "Pairs of groups that a thread reassigns in a call.", 1)
    crowd_weight: float = parameter(0.01, "share", "What a wide job too many in a group counts as.")
    sample: int = parameter(64, "sets", "Server sets that are looked at when a job is first assigned.", 1)


@dataclass(frozen=True, slots=True)
class SearchParams:
    """All parameters of the search.

    Parameters
    ----------
    without
        Names of moves that are left out.
    driver, opening, prices, candidates, load_balancing, list_annealing, sequence_annealing, relocation, cp_repair
        Parameters of each part; see its class.
    rebalance, order_insertion, cp_placement, insertion, group_insertion
        Likewise.
    """

    without: tuple[str, ...] = ()
    driver: DriverParams = field(default_factory=DriverParams)
    opening: OpeningParams = field(default_factory=OpeningParams)
    prices: PriceParams = field(default_factory=PriceParams)
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
