"""A batch of ring-all-reduce jobs, and how fast one runs (SJF-BCO, MobiHoc 2022, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from jigsaw_opt.problem.costs import ceil_fraction
from jigsaw_opt.problem.network.contention import Degraded, degradation

Spread: TypeAlias = tuple[int, ...]
"""Workers of a job on every server, ``y_js`` over ``s``."""


@dataclass(frozen=True, slots=True)
class RingJob:
    """A job that trains by ring all-reduce.

    `workers`: GPUs that it holds from start to end, ``G_j = w_j``; at least 1. `gradient`: bytes exchanged in an
    iteration, ``m_j``. `samples`: samples of a worker in an iteration, ``M_j``. `forward_us`: time of the forward pass
    of one sample, ``Delta f_j``. `backward_us`: time of the backward pass, ``Delta b_j``.
    """

    name: str
    workers: int
    iterations: int
    gradient: int
    samples: int
    forward_us: int
    backward_us: int


@dataclass(frozen=True, slots=True)
class BatchNetwork:
    """The network that exchanges go over.

    `inside, outside`: bytes per second between GPUs of one server, ``b^i``, and out of a server, ``b^e``. `reduction`:
    bytes per second that a GPU adds up, ``C``. `overhead_us`: time that an iteration pays for every server of its job,
    ``xi_2``.
    """

    inside: int
    outside: int
    reduction: int
    contention: Degraded
    overhead_us: Fraction


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that are all there at time 0, on servers with GPUs of one kind.

    `slot_us`: length of a slot; all times of schedules are in slots.
    """

    gpus: tuple[int, ...]
    jobs: tuple[RingJob, ...]
    network: BatchNetwork
    slot_us: int
    horizon: int


def sharing(spreads: Sequence[Spread]) -> tuple[int, ...]:
    """Return for each of the jobs that run at once, ``p_j`` of equation (6).

    It is the largest number of jobs on several servers, the job itself included, that meet on a server of the job; 0
    for a job on one server.
    """
    across = [sum(count > 0 for count in spread) > 1 for spread in spreads]
    # Only jobs on several servers use links out of a server, so only these meet there.
    meeting = [sum(many and count > 0 for many, count in zip(across, column)) for column in zip(*spreads, strict=True)]
    return tuple(
        max(total for total, count in zip(meeting, spread, strict=True) if count) if many else 0
        for many, spread in zip(across, spreads, strict=True)
    )


def iteration_us(network: BatchNetwork, job: RingJob, servers: int, sharing: int) -> Fraction:
    """Return the time of an iteration, ``tau_j`` of equation (8), in microseconds."""
    slowdown = network.contention.slowdown(sharing)
    bandwidth = Fraction(network.inside) if servers == 1 else network.outside / slowdown
    return _iteration_us(network, job, servers, bandwidth)


def speed(batch: Batch, job: RingJob, servers: int, sharing: int) -> int:
    """Return the whole iterations that a job does in a slot, ``phi_j``."""
    return int(batch.slot_us / iteration_us(batch.network, job, servers, sharing))


def estimate(batch: Batch, job: RingJob) -> int:
    """Return the slots that a job is taken to last before it is placed, ``rho^_j``.

    That is its iterations times their largest time, which has all GPUs of the largest server held by jobs on several
    servers and a server for every worker.

    Parameters
    ----------
    batch
        Jobs and servers.
    job
        The job.
    """
    slowest = batch.network.outside / degradation(batch.network.contention.alpha, max(batch.gpus))
    return ceil_fraction(job.iterations * _iteration_us(batch.network, job, job.workers, slowest) / batch.slot_us)


def overestimate(batch: Batch) -> Fraction:
    """Return how much `estimate` may be too large, ``u``: the largest ratio to the time on one server."""
    network = batch.network
    return max(
        estimate(batch, job) * batch.slot_us / (job.iterations * iteration_us(network, job, 1, 0)) for job in batch.jobs
    )


def _iteration_us(network: BatchNetwork, job: RingJob, servers: int, bandwidth: Fraction) -> Fraction:
    part = Fraction(job.gradient * (job.workers - 1), job.workers)
    # Reduce-scatter and all-gather move the part once each, and what is received by the former is added up.
    exchange = 10**6 * part * (2 / bandwidth + Fraction(1, network.reduction))
    return exchange + servers * network.overhead_us + job.forward_us * job.samples + job.backward_us
