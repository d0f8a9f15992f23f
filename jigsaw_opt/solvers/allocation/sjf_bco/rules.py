"""Which GPUs a job gets: FA-FFP and LBSGF as printed and as meant, and the rules of the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from random import Random
from typing import Literal, Protocol, TypeAlias

from jigsaw_opt.formulations.sjf_bco import ExchangeChain, conflict_free, step
from jigsaw_opt.problem.costs import ceil_fraction


class GpuLedger(Protocol):
    """GPUs, numbered from 0 through the servers, with what is planned on them."""

    @property
    def sizes(self) -> Sequence[int]:
        """Return the GPUs of every server, ``O_s``."""

    @property
    def server_of(self) -> Sequence[int]:
        """Return the server of every GPU."""

    @property
    def loads(self) -> Sequence[int]:
        """Return the load of every GPU, ``U_g``."""

    def workers(self, job: int) -> int:
        """Return how many GPUs a job needs, ``G_j``."""

    def candidates(self, job: int) -> list[int]:
        """Return the GPUs, ascending, on which the job may start now."""


Rule: TypeAlias = Callable[[int, GpuLedger], "Sequence[int] | None"]
"""Chooses the GPUs of a job, or None where it has to wait."""


Variant: TypeAlias = Literal["literal", "intent"]
"""FA-FFP and LBSGF as printed, or as their names and the text say."""


def rule_of(variant: Variant, threshold: int, spread: Fraction) -> Rule:
    """Return FA-FFP for jobs of at most `threshold` GPUs, and LBSGF for larger ones (Algorithm 1).

    `spread`: LBSGF looks at servers with at least so many times the GPUs of a job, ``lambda`` at least 1.
    """
    small, large = {
        "literal": (least_loaded, least_busy_servers_as_printed(spread)),
        "intent": (packed, least_busy_servers_as_meant(spread)),
    }[variant]
    return lambda job, board: (small if board.workers(job) <= threshold else large)(job, board)


def first_gpus(job: int, board: GpuLedger) -> Sequence[int] | None:
    """Return the first GPUs, server by server, None for too few: baseline FF."""
    return _enough(board.candidates(job), job, board)


def least_loaded(job: int, board: GpuLedger) -> Sequence[int] | None:
    """Return the GPUs with the least load, None for too few.

    This is baseline LS, and FA-FFP as its pseudo-code is printed (Algorithm 2).
    """
    return _enough(_by_load(board.candidates(job), board), job, board)


def packed(job: int, board: GpuLedger) -> Sequence[int] | None:
    """Return GPUs by FA-FFP as its name and text say: where other jobs are already, and on few servers.

    It takes the servers already used before the others. On these, one that has room for the whole job is filled as
    tightly as possible; where none has, those with the most room are taken, which are the fewest.
    """
    need = board.workers(job)
    room = _by_server(board.candidates(job), board)
    if sum(map(len, room.values())) < need:
        return None
    whole = [server for server, gpus in room.items() if len(gpus) >= need]
    if whole:
        used = [server for server in whole if _load(server, board)]
        best = min(used or whole, key=lambda server: len(room[server]))
        return room[best][:need]
    widest = sorted(room, key=lambda server: -len(room[server]))
    return [gpu for server in widest for gpu in room[server]][:need]


def random_gpus(seed: int) -> Rule:
    """Return a rule that takes any GPUs: baseline RAND."""
    random = Random(seed)

    def rule(job: int, board: GpuLedger) -> Sequence[int] | None:
        candidates, need = board.candidates(job), board.workers(job)
        return random.sample(candidates, need) if len(candidates) >= need else None

    return rule


def least_busy_servers_as_printed(spread: Fraction) -> Rule:
    """Return LBSGF (Algorithm 3): the least-loaded GPUs of the least busy servers that have ``spread G_j`` GPUs."""

    def rule(job: int, board: GpuLedger) -> Sequence[int] | None:
        servers = set(_least_busy(job, board, spread))
        inside = [gpu for gpu in board.candidates(job) if board.server_of[gpu] in servers]
        return _enough(_by_load(inside, board), job, board)

    return rule


def least_busy_servers_as_meant(spread: Fraction) -> Rule:
    """Return LBSGF as its name says: of the same servers one after the other, the least busy first."""

    def rule(job: int, board: GpuLedger) -> Sequence[int] | None:
        room = _by_server(board.candidates(job), board)
        ordered = [gpu for server in _least_busy(job, board, spread) for gpu in room.get(server, ())]
        return _enough(ordered, job, board)

    return rule


def _least_busy(job: int, board: GpuLedger, spread: Fraction) -> list[int]:
    """Return the servers with the least load a GPU, as few as have `spread` times the GPUs of the job."""
    sizes = board.sizes
    order = sorted(range(len(sizes)), key=lambda server: Fraction(_load(server, board), sizes[server]))
    need, chosen = ceil_fraction(spread * board.workers(job)), []
    for server in order:
        if need <= 0:
            break
        chosen.append(server)
        need -= sizes[server]
    return chosen


def _load(server: int, board: GpuLedger) -> int:
    """Return the sum of the loads of a server's GPUs."""
    first = sum(board.sizes[:server])
    return sum(board.loads[first : first + board.sizes[server]])


def _enough(gpus: Sequence[int], job: int, board: GpuLedger) -> Sequence[int] | None:
    """Return as many of the GPUs as the job needs, or None where there are too few."""
    need = board.workers(job)
    return gpus[:need] if len(gpus) >= need else None


def _by_load(gpus: Iterable[int], board: GpuLedger) -> list[int]:
    """Return the GPUs, least loaded first; of equal ones the first."""
    return sorted(gpus, key=board.loads.__getitem__)


def _by_server(gpus: Iterable[int], board: GpuLedger) -> dict[int, list[int]]:
    """Return the GPUs of each server that has any, least loaded first."""
    room: dict[int, list[int]] = {}
    for gpu in _by_load(gpus, board):
        room.setdefault(board.server_of[gpu], []).append(gpu)
    return dict(sorted(room.items()))


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
