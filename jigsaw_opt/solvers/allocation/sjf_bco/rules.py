"""Which GPUs a job gets: FA-FFP and LBSGF as printed and as meant, and the rules of the baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from random import Random

from jigsaw_opt.formulations.sjf_bco import Batch
from jigsaw_opt.problem.costs import ceil_fraction
from jigsaw_opt.solvers.allocation.sjf_bco.machine import Machine, Rule

__all__ = [
    "first_gpus",
    "least_busy_servers_as_meant",
    "least_busy_servers_as_printed",
    "least_loaded",
    "packed",
    "random_gpus",
]


def first_gpus(job: int, machine: Machine) -> Sequence[int] | None:
    """The first GPUs, server by server: baseline FF."""
    return _enough(machine.candidates(job), job, machine)


def least_loaded(job: int, machine: Machine) -> Sequence[int] | None:
    """The GPUs with the least load: baseline LS, and FA-FFP as its pseudo-code is printed (Algorithm 2)."""
    return _enough(_by_load(machine.candidates(job), machine), job, machine)


def packed(job: int, machine: Machine) -> Sequence[int] | None:
    """FA-FFP as its name and text say: a job goes where others are already, and on few servers.

    It takes the servers already used before the others. On these, one that has room for the whole job is filled as
    tightly as possible; where none has, those with the most room are taken, which are the fewest.
    """
    need = _workers(job, machine)
    room = _by_server(machine.candidates(job), machine)
    if sum(map(len, room.values())) < need:
        return None
    whole = [server for server, gpus in room.items() if len(gpus) >= need]
    if whole:
        used = [server for server in whole if machine.server_load(server)]
        best = min(used or whole, key=lambda server: len(room[server]))
        return room[best][:need]
    widest = sorted(room, key=lambda server: -len(room[server]))
    return [gpu for server in widest for gpu in room[server]][:need]


def random_gpus(seed: int) -> Rule:
    """Any GPUs: baseline RAND."""
    random = Random(seed)

    def rule(job: int, machine: Machine) -> Sequence[int] | None:
        candidates, need = machine.candidates(job), _workers(job, machine)
        return random.sample(candidates, need) if len(candidates) >= need else None

    return rule


def least_busy_servers_as_printed(spread: Fraction) -> Rule:
    """LBSGF (Algorithm 3): the least-loaded GPUs of the least busy servers that have ``spread G_j`` GPUs."""

    def rule(job: int, machine: Machine) -> Sequence[int] | None:
        servers = set(_least_busy(job, machine, spread))
        inside = [gpu for gpu in machine.candidates(job) if machine.known.server_of[gpu] in servers]
        return _enough(_by_load(inside, machine), job, machine)

    return rule


def least_busy_servers_as_meant(spread: Fraction) -> Rule:
    """LBSGF as its name says: of the same servers one after the other, the least busy first."""

    def rule(job: int, machine: Machine) -> Sequence[int] | None:
        room = _by_server(machine.candidates(job), machine)
        ordered = [gpu for server in _least_busy(job, machine, spread) for gpu in room.get(server, ())]
        return _enough(ordered, job, machine)

    return rule


def _least_busy(job: int, machine: Machine, spread: Fraction) -> list[int]:
    """The servers with the least load a GPU, as few as have `spread` times the GPUs of the job."""
    batch: Batch = machine.known.batch
    order = sorted(range(len(batch.gpus)), key=lambda s: Fraction(machine.server_load(s), batch.gpus[s]))
    need, chosen = ceil_fraction(spread * _workers(job, machine)), []
    for server in order:
        if need <= 0:
            break
        chosen.append(server)
        need -= batch.gpus[server]
    return chosen


def _workers(job: int, machine: Machine) -> int:
    return machine.known.batch.jobs[job].workers


def _enough(gpus: Sequence[int], job: int, machine: Machine) -> Sequence[int] | None:
    """As many of the GPUs as the job needs, or None where there are too few."""
    need = _workers(job, machine)
    return gpus[:need] if len(gpus) >= need else None


def _by_load(gpus: Iterable[int], machine: Machine) -> list[int]:
    """The GPUs, least loaded first; of equal ones the first."""
    return sorted(gpus, key=machine.loads.__getitem__)


def _by_server(gpus: Iterable[int], machine: Machine) -> dict[int, list[int]]:
    """The GPUs of each server that has any, least loaded first."""
    room: dict[int, list[int]] = {}
    for gpu in _by_load(gpus, machine):
        room.setdefault(machine.known.server_of[gpu], []).append(gpu)
    return dict(sorted(room.items()))
