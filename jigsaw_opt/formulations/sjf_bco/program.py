"""The integer program over whole schedules (equations 10 to 13), and jobs at fixed places as chains.

In the model without contention of Yu and Liu's follow-up to SJF-BCO, a job at a fixed place is a chain of iterations,
each a computation and then an exchange over links that carry one exchange at a time. Time is in slots; in a slot, a job
that computes goes on, and one that is due to exchange may go on or wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression

if TYPE_CHECKING:
    import pulp

Choice: TypeAlias = "tuple[tuple[pulp.LpVariable, ...], ...]"


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """The program and its variables.

    `program`: the program; its objective is the makespan in slots.
    """

    program: AlgebraicModel
    choice: Choice

    def chosen(self, values: Sequence[float]) -> int:
        """Return the number of the schedule that the values of all columns choose."""
        first = self.choice[0]
        # All jobs have the same schedule, so that the first job says which. The largest value is taken, as floats may
        # be a little off 1.
        return max(range(len(first)), key=lambda k: values[self.program.column(first[k])])


def build(ends: Sequence[Sequence[int]]) -> ScheduleChoice:
    """Build the program that chooses one of the listed schedules, ``Y``.

    Parameters
    ----------
    ends
        End of every job in every schedule, ``a_j(y^k) + rho_j(y^k)`` by schedule and job; at least one of each.
    """
    program = AlgebraicModel("sjf_bco")
    jobs, schedules = range(len(ends[0])), range(len(ends))
    choice = tuple(tuple(program.binary(f"x_{j}_{k}") for k in schedules) for j in jobs)
    makespan = program.time("makespan", 0, max(map(max, ends)))
    program.minimize(makespan)
    _every_end_is_within_the_makespan(program, makespan, choice, ends)
    _every_job_has_one_schedule(program, choice)
    _all_jobs_have_the_same(program, choice)
    return ScheduleChoice(program, choice)


def _every_end_is_within_the_makespan(
    program: AlgebraicModel, makespan: Expression, choice: Choice, ends: Sequence[Sequence[int]]
) -> None:
    """Add equation (10): ``makespan >= sum_k T_j(y^k) x_j^k``."""
    for j, row in enumerate(choice):
        program.add(makespan >= program.total(ends[k][j] * x for k, x in enumerate(row)), f"end_{j}")


def _every_job_has_one_schedule(program: AlgebraicModel, choice: Choice) -> None:
    """Add equation (11): ``sum_k x_j^k = 1``."""
    for j, row in enumerate(choice):
        program.add(program.total(row) == 1, f"one_{j}")


def _all_jobs_have_the_same(program: AlgebraicModel, choice: Choice) -> None:
    """Add equation (12): ``x_j^k = x_j'^k``, for neighbours, which says it for all."""
    for j, (row, following) in enumerate(pairwise(choice)):
        for k, (mine, other) in enumerate(zip(row, following, strict=True)):
            program.add(mine == other, f"same_{j}_{k}")


@dataclass(frozen=True, slots=True)
class ExchangeChain:
    """A placed job.

    `compute, exchange`: slots of either in an iteration; at least 1 together. `links`: what an exchange uses; empty on
    one server.
    """

    iterations: int
    compute: int
    exchange: int
    links: frozenset[int]

    @property
    def slots(self) -> int:
        """Slots of the whole chain."""
        return self.iterations * (self.compute + self.exchange)

    def exchanges(self, done: int) -> bool:
        """Return whether an exchange is due after `done` slots of work."""
        return done < self.slots and done % (self.compute + self.exchange) >= self.compute

    def mid_exchange(self, done: int) -> bool:
        """Return whether an exchange has begun and not ended after `done` slots of work."""
        return done % (self.compute + self.exchange) > self.compute


def conflict_free(chains: Sequence[ExchangeChain], chosen: Sequence[int]) -> bool:
    """Return whether no two of the chosen chains use a link together."""
    links = [link for k in chosen for link in chains[k].links]
    return len(links) == len(set(links))


def step(chains: Sequence[ExchangeChain], done: Sequence[int], sending: Sequence[int]) -> tuple[int, ...]:
    """Return the work done after one more slot, in which all that compute go on, and of the others those in `sending`.

    Parameters
    ----------
    chains
        All placed jobs.
    done
        Slots of work that each has done.
    sending
        Numbers of the jobs that exchange in this slot.
    """
    return tuple(
        slots + (slots < chain.slots and (k in sending or not chain.exchanges(slots)))
        for k, (chain, slots) in enumerate(zip(chains, done, strict=True))
    )
