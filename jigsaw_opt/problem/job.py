"""Jobs and their depth rules (specification: jobs, depth-rules)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.problem.efficiency import MILLION
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.rules.part import CheckedPart

_FULL = FullDepth()


@dataclass(frozen=True, slots=True)
class Job(CheckedPart, definition="job"):
    """A data-parallel training job.

    Parameters
    ----------
    name, model
        Its name and the name of its model.
    workers, iterations
        Number of workers ``w`` and of iterations ``n``.
    release_us
        Its first blocks start no earlier.
    weight
        Its weight in `weighted_completion`.
    depth
        Its depth rule.
    deadline_us
        It ends no later; None for no deadline, as on the cyclic horizon.
    pace_us
        Cycle-time limit on the cyclic horizon: an iteration takes no more microseconds on average; None for none.
    route_policy
        Which policy of the cluster its routes keep; None for none.
    restart_us
        In a phased plan it may pause, or go on on other GPUs, so many microseconds later; None for a job that keeps its
        GPUs and its memory (specification: moves).
    licences
        Licences, of each of which it holds one while it is present; None for none (specification: licences).
    exchange
        How it exchanges gradients, where not all of them in each step; None for all.
    """

    name: str
    model: str
    workers: int
    iterations: int
    release_us: int = 0
    weight: int = 1
    depth: Depth = _FULL
    deadline_us: int | None = None
    pace_us: int | None = None
    route_policy: str | None = None
    restart_us: int | None = None
    licences: tuple[str, ...] | None = None
    exchange: JobExchange | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks of an iteration."""
        return self.workers

    @property
    def step_progress(self) -> Fraction:
        """Progress of an iteration at full depth beside a step with whole gradients (specification: exchange)."""
        return Fraction(1) if self.exchange is None else Fraction(self.exchange.progress, MILLION)

    def block_us(self, one_pass_us: Sequence[int]) -> tuple[int, ...]:
        """Return the duration of a block by level, in microseconds (specification: block).

        Parameters
        ----------
        one_pass_us
            That of a forward and backward pass by level.
        """
        return tuple(one_pass_us) if self.exchange is None else self.exchange.block_us(one_pass_us)

    def sent_bytes(self, buckets: Sequence[int]) -> tuple[int, ...]:
        """Return the payload of the transfer of each bucket (specification: transfer).

        Parameters
        ----------
        buckets
            Bytes of the parameters of each bucket.
        """
        return tuple(buckets if self.exchange is None else map(self.exchange.sent_bytes, buckets))

    def block_slots(self) -> Iterator[tuple[int, ...]]:
        """Yield for each block of an iteration the number of its worker."""
        return ((worker,) for worker in range(self.workers))
