"""LRETF: the longest remaining chain exchanges first (Yu and Liu's follow-up to SJF-BCO)."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.formulations.sjf_bco import ExchangeChain, conflict_free, step

__all__ = ["longest_remaining_first"]


def longest_remaining_first(chains: Sequence[ExchangeChain], preemptive: bool) -> tuple[int, ...]:
    """Return the ends of jobs when, in every slot, exchanges of the longest remaining chains go first.

    Exchanges that meet on no link go together.

    `preemptive`: whether an exchange may be put aside at any slot; if not, one that has begun goes on.
    """
    done = (0,) * len(chains)
    ends = [0] * len(chains)
    clock = 0
    while any(slots < chain.slots for slots, chain in zip(done, chains, strict=True)):
        clock += 1
        before, done = done, step(chains, done, _sending(chains, done, preemptive))
        for k, chain in enumerate(chains):
            if before[k] < done[k] == chain.slots:
                ends[k] = clock
    return tuple(ends)


def _sending(chains: Sequence[ExchangeChain], done: Sequence[int], preemptive: bool) -> list[int]:
    """Return the jobs whose exchange goes on in this slot."""
    due = [k for k, chain in enumerate(chains) if chain.exchanges(done[k])]
    begun = [] if preemptive else [k for k in due if chains[k].mid_exchange(done[k])]
    chosen = list(begun)
    for k in sorted(set(due).difference(begun), key=lambda k: (done[k] - chains[k].slots, k)):
        if conflict_free(chains, [*chosen, k]):
            chosen.append(k)
    return chosen
