"""One round of Sia: every job takes at most one configuration of GPUs (Sia, SOSP'23, section 3.3).

A configuration is a number of GPUs of some type. Few rows (the GPU types) couple many columns (jobs times
configurations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.linear import Entries, Floats, Integers, LinearProgram, ProgramBuilder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_ALLOCATION = -1
"""The entry of a choice for a job without GPUs."""


@dataclass(frozen=True, slots=True)
class SiaRound:
    """Minimise the cost of the chosen configurations and of the jobs left idle, within the GPUs there are.

    There is at least one job.

    `cost`: ``cost[job, configuration]``; infinite where the job cannot use the configuration. `gpus`: GPUs of each type
    that a configuration takes, ``(configurations, types)``. `idle`: cost of leaving a job without GPUs, ``(jobs,)``;
    infinite where it must not be.
    """

    cost: Floats
    gpus: Integers
    capacity: Integers
    idle: Floats

    def objective(self, choice: Integers) -> float:
        """Return the cost of a choice: for each job the index of its configuration, or `NO_ALLOCATION`."""
        import numpy as np

        taken = choice != NO_ALLOCATION
        return float(self.cost[np.flatnonzero(taken), choice[taken]].sum() + self.idle[~taken].sum())

    def used(self, choice: Integers) -> Integers:
        """Return the GPUs of each type that a choice takes."""
        used: Integers = self.gpus[choice[choice != NO_ALLOCATION]].sum(axis=0)
        return used

    def keeping(self, jobs: NDArray[np.bool_], current: Integers) -> SiaRound:
        """Return the same round where `jobs` must keep the configurations that they have.

        `current`: by job, the number of its configuration.
        """
        import numpy as np

        kept = np.flatnonzero(jobs)
        cost, idle = self.cost.copy(), self.idle.copy()
        cost[kept] = np.inf
        cost[kept, current[kept]] = self.cost[kept, current[kept]]
        idle[kept] = np.inf
        return SiaRound(cost, self.gpus, self.capacity, idle)

    def program(self) -> LinearProgram:
        """Build the integer program: a column a job and configuration that it can use, then one an idle job."""
        import numpy as np

        jobs, configurations = np.nonzero(np.isfinite(self.cost))
        may_idle = np.flatnonzero(np.isfinite(self.idle))
        owners = np.concatenate([jobs, may_idle])
        costs = np.concatenate([self.cost[jobs, configurations], self.idle[may_idle]])
        builder = ProgramBuilder()
        columns = builder.add_columns(costs, upper=1.0, integer=True)
        # Every job takes exactly one column: a configuration, or being idle.
        once = np.ones(len(self.cost))
        builder.add_rows(Entries(owners, columns, np.ones(len(owners))), once, once)
        builder.add_rows(self._gpus_taken(configurations), -np.inf, self.capacity)
        return builder.program()

    def choice(self, values: Floats) -> Integers:
        """Return the choice that a solution of `program` stands for."""
        import numpy as np

        jobs, configurations = np.nonzero(np.isfinite(self.cost))
        # The engine returns integers as floats, which may be off by its tolerance.
        taken = np.flatnonzero(values[: len(jobs)] > 0.5)
        choice = np.full(len(self.cost), NO_ALLOCATION)
        choice[jobs[taken]] = configurations[taken]
        return choice

    def _gpus_taken(self, configurations: Integers) -> Entries:
        """Return the GPUs of each type by column."""
        import numpy as np

        columns, types = np.nonzero(self.gpus[configurations])
        return Entries(types, columns, self.gpus[configurations[columns], types])


def configurations(servers: int, width: int) -> tuple[tuple[int, int], ...]:
    """Return the servers and GPUs of the configurations of one type: powers of two on one, or whole servers."""
    parts = [(1, 2**k) for k in range(width.bit_length()) if 2**k < width]
    return (*parts, *((count, count * width) for count in range(1, servers + 1)))


def normalised(goodput: Floats, least_gpus: Integers) -> Floats:
    """Divide goodputs of each job by that of its worst configuration, times the GPUs that it needs at least.

    Sia's ``G_ij <- N_i^min G_ij / min_j G_ij``, over the configurations with goodput above 0; the others stay 0.

    `least_gpus`: by job, the GPUs that it needs at least.
    """
    import numpy as np

    usable = np.where(goodput > 0, goodput, np.inf)
    worst = usable.min(axis=1, initial=np.inf, keepdims=True)
    return np.where(goodput > 0, goodput / np.where(np.isfinite(worst), worst, 1), 0.0) * least_gpus[:, None]


def restart_factors(age: Floats, restarts: Integers, restart_cost: Floats) -> Floats:
    """Return the share of its goodput that a job would keep if it went on being restarted as often as so far.

    Sia's ``r_i = (T_i - N_i S_i) / (T_i + S_i)``, with the age T, the restarts N and the cost S of one in the same
    unit of time. Below 0 stands for a job that has spent more time in restarts than it has lived; it is taken as 0.
    """
    import numpy as np

    return np.maximum(age - restarts * restart_cost, 0.0) / (age + restart_cost)


def build(
    goodput: Floats,
    gpus: Integers,
    capacity: Integers,
    *,
    power: float = -0.5,
    penalty: float = 1.1,
    factors: Floats | None = None,
    current: Integers | None = None,
) -> SiaRound:
    """Build Sia's program for one round.

    The paper maximises ``sum_ij A_ij r_i G_ij^p + lambda sum_i (1 - |A_i|)`` for p > 0 and minimises it for p < 0. As
    printed, idle jobs would be rewarded for p > 0; the text calls the term a penalty, so here it costs in both
    cases. As printed, r < 1 would favour a change for p < 0; here r discounts the goodput, ``(r_i G_ij)^p``.

    `penalty`: the cost lambda of an idle job, at least 0. `factors`: restart factor of each job; it applies to all
    configurations but the current one. None for 1. `current`: configuration that each job has, or `NO_ALLOCATION`. None
    for no job having any.
    """
    import numpy as np

    kept = np.ones_like(goodput) if factors is None else np.repeat(factors[:, None], goodput.shape[1], axis=1)
    if current is not None:
        staying = np.flatnonzero(current != NO_ALLOCATION)
        kept[staying, current[staying]] = 1.0
    value = kept * goodput
    usable = value > 0
    cost = np.where(usable, -np.sign(power) * np.where(usable, value, 1.0) ** power, np.inf)
    return SiaRound(cost, gpus, capacity, np.full(len(goodput), float(penalty)))
