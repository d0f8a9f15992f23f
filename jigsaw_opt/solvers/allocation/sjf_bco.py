"""Which GPUs a job gets by SJF-BCO (MobiHoc 2022): FA-FFP and LBSGF as printed and as meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from jigsaw_opt.problem.costs import ceil_fraction


@dataclass(frozen=True, slots=True)
class GpuLedger:
    """Servers that links join, with what is planned on their GPUs.

    `servers`: numbers of the GPUs of every server. `loads`: load of every GPU by its number, ``U_g``. `free`: GPUs on
    which a job may start now.
    """

    servers: Sequence[Sequence[int]]
    loads: Sequence[int]
    free: Collection[int]

    def least_loaded(self, servers: Iterable[int]) -> list[int]:
        """Return the free GPUs of some servers, least loaded first; of equal ones the first."""
        free = (gpu for server in servers for gpu in self.servers[server] if gpu in self.free)
        return sorted(free, key=self.loads.__getitem__)

    def load(self, server: int) -> int:
        """Return the sum of the loads of a server's GPUs."""
        return sum(self.loads[gpu] for gpu in self.servers[server])

    def least_busy(self, gpus: Fraction) -> list[int]:
        """Return the servers with the least load a GPU, as few as have so many GPUs."""
        sizes = [len(own) for own in self.servers]
        chosen, need = list[int](), ceil_fraction(gpus)
        for server in sorted(range(len(sizes)), key=lambda server: Fraction(self.load(server), sizes[server])):
            if need <= 0:
                break
            chosen.append(server)
            need -= sizes[server]
        return chosen


Rule: TypeAlias = Callable[[int, GpuLedger], "Sequence[int] | None"]
"""Chooses so many GPUs, or None where a job has to wait."""
Variant: TypeAlias = Literal["literal", "intent"]
"""FA-FFP and LBSGF as printed, or as their names and the text say."""


def rule_of(variant: Variant, threshold: int, spread: Fraction) -> Rule:
    """Return FA-FFP for jobs of at most `threshold` GPUs, and LBSGF for larger ones (Algorithm 1).

    FA-FFP takes any GPUs, and LBSGF those of the least busy servers with at least `spread` times the GPUs of the job,
    ``lambda`` at least 1. As printed both take the least loaded of them (Algorithms 2 and 3); as meant, LBSGF takes one
    server after the other, the least busy first.
    """

    def rule(need: int, ledger: GpuLedger) -> Sequence[int] | None:
        large = need > threshold
        servers = ledger.least_busy(spread * need) if large else list(range(len(ledger.servers)))
        if variant == "literal":
            gpus = ledger.least_loaded(sorted(servers))
        elif large:
            gpus = [gpu for server in servers for gpu in ledger.least_loaded([server])]
        else:
            gpus = _packed(need, ledger)
        return gpus[:need] if len(gpus) >= need else None

    return rule


def _packed(need: int, ledger: GpuLedger) -> list[int]:
    """Return GPUs by FA-FFP as its name and text say: where other jobs are already, and on few servers.

    It takes the servers already used before the others. On these, one that has room for the whole job is filled as
    tightly as possible; where none has, those with the most room are taken, which are the fewest.
    """
    room = [ledger.least_loaded([server]) for server in range(len(ledger.servers))]
    whole = [server for server, gpus in enumerate(room) if len(gpus) >= need]
    if whole:
        return room[min([k for k in whole if ledger.load(k)] or whole, key=lambda server: len(room[server]))]
    return [gpu for gpus in sorted(room, key=lambda gpus: -len(gpus)) for gpu in gpus]
