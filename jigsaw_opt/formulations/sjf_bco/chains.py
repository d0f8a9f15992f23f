"""Jobs at fixed places whose exchanges exclude each other on links: the model without contention.

Yu and Liu's follow-up to SJF-BCO: a job is a chain of iterations, each a computation and then an exchange over links
that carry one exchange at a time. Time is in slots; in a slot, a job that computes goes on, and one that is due to
exchange may go on or wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ExchangeChain", "conflict_free", "step"]


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
