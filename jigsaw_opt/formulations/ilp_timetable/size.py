"""The size of an instance's program, counted from its jobs and its cluster without building it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations, combinations_with_replacement
from math import gcd
from typing import NamedTuple, TypeVar

from jigsaw_opt.formulations.ilp_timetable.job_size import JobSize, ProgramSize, add_job
from jigsaw_opt.formulations.ilp_timetable.placement import DIGIT
from jigsaw_opt.formulations.ilp_timetable.symmetry import leading_digits
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.network import RoutedNetwork, identical_jobs, identical_servers
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.critical import candidate_levels, shortest_transfers, tails_us
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.costs import most_bytes

__all__ = ["ProgramSize", "program_size"]

_Kind = TypeVar("_Kind")


def program_size(operations: Operations) -> ProgramSize:
    """Return the size of the program that `build` makes of a finite instance: never less than it has.

    Columns are exact, but for the one of each contradiction, and so are rows, but for the orders that windows leave no
    choice of: a row for each is counted everywhere.
    """
    eligibility = GpuEligibility(operations)
    network, size = RoutedNetwork(eligibility), ProgramSize(columns=1)
    allowed = [Counter(map(eligibility.server, eligibility.allowed(job))) for job in operations.jobs]
    if not all(allowed):
        size.columns += 1
        size.add(1, 1)
        return size
    numbers = (len(operations.jobs), len(eligibility.gpus), max(job.iterations for job in operations.jobs))
    size.digits = sum(len(str(number)) + 1 for number in numbers)
    routes: dict[tuple[object, ...], dict[int, list[tuple[int, int]]]] = {}
    jobs = []
    for job, gpus in checking_deadline(zip(operations.jobs, allowed, strict=True)):
        linked = job.slots > 1 and bool(network.cluster.links)
        if linked and (job.route_policy, *gpus) not in routes:
            routes[job.route_policy, *gpus] = network.routes(job, tuple(gpus))
        jobs.append(add_job(size, network, job, gpus, routes[job.route_policy, *gpus] if linked else {}))
    (_add_present_jobs if operations.has_scarce_memory else _add_memory)(size, eligibility, jobs)
    _add_blocks(size, jobs)
    _add_transfers(size, jobs)
    _add_order(size, network, jobs)
    size.add(sum(job.deadline_us is not None for job in operations.jobs), 1)
    if operations.objective == "weighted_completion":
        size.add(1, 1 + len(jobs))
    else:
        size.add(len(jobs), 2)
        _add_loads(size, eligibility, jobs)
    return size


def _add_memory(size: ProgramSize, eligibility: GpuEligibility, jobs: Sequence[JobSize]) -> None:
    for s, server in enumerate(eligibility.operations.cluster.servers):
        inside = [job_size for job_size in jobs if s in job_size.gpus]
        if most_bytes(job_size.job for job_size in inside) <= server.gpu_memory:
            continue
        for job_size in checking_deadline(inside):
            _add_sums(size, inside, job_size, server.gpu_memory, server.gpus)


def _add_sums(size: ProgramSize, inside: Sequence[JobSize], job_size: JobSize, memory: int, times: int) -> None:
    """Count so many times the sums of bytes in which the activations of a job count beside the states of all."""
    states = gcd(*(other.job.state_bytes for other in inside))
    sizes = [min(job_size.job.activation_bytes[d - 1], memory + 1) for d in candidate_levels(job_size.job)]
    limit, carries = memory // (gcd(states, *sizes) or 1), 0
    while limit >= DIGIT:
        limit, carries = limit // DIGIT, carries + 1
    count = times * job_size.distinct
    size.columns += count * carries
    size.add(count * (carries + 1), len(inside) + (job_size.choices if job_size.choices > 1 else 0))
    size.coefficients += count * 2 * carries


def _add_present_jobs(size: ProgramSize, eligibility: GpuEligibility, jobs: Sequence[JobSize]) -> None:
    """Count the orders of jobs that memory may ask for, and for each job that begins what is on a GPU then."""
    pairs: set[tuple[int, int]] = set()
    for s, server in enumerate(eligibility.operations.cluster.servers):
        numbers = [number for number, job_size in enumerate(jobs) if s in job_size.gpus]
        inside = [jobs[number] for number in numbers]
        if most_bytes(job_size.job for job_size in inside) <= server.gpu_memory:
            continue
        pairs |= set(combinations(numbers, 2))
        others = len(inside) - 1
        levels = sum(job_size.distinct * job_size.choices for job_size in inside if job_size.choices > 1)
        size.columns += server.gpus * others * (len(inside) + levels)
        size.add(server.gpus * others * (len(inside) + levels), 4)
        for job_size in checking_deadline(inside):
            _add_sums(size, inside, job_size, server.gpu_memory, server.gpus * len(inside))
    members = {number for pair in pairs for number in pair}
    size.columns += len(members) + 3 * len(pairs)
    size.add(sum(jobs[number].places for number in members), 2)
    size.add(4 * len(pairs), 3)
    size.add(2 * len(pairs), 2)


class _Sequence(NamedTuple):
    """Operations of a job on a resource, as far as the size of the program depends on them.

    `certain`: how many of them certainly last.
    """

    number: int
    certain: int
    terms: int


def _add_blocks(size: ProgramSize, jobs: Sequence[JobSize]) -> None:
    """Count the orders of blocks of two jobs on each GPU that both may use."""
    kinds = Counter(
        (
            tuple(job_size.gpus.items()),
            _Sequence(job_size.job.iterations, job_size.job.iterations, job_size.job.iterations * job_size.choices),
        )
        for job_size in jobs
    )
    for ((gpus, one), (others, two)), pairs in _pairs(kinds):
        elsewhere = dict(others)
        common = pairs * sum(count for s, count in gpus if s in elsewhere)
        size.columns += common
        size.add(common, 3)
        size.add(2 * common, 2)
        _add_disjoint(size, common, one, two)


def _add_transfers(size: ProgramSize, jobs: Sequence[JobSize]) -> None:
    """Count the orders of transfers of two jobs that may use a link both."""
    kinds: Counter[tuple[frozenset[int], _Sequence]] = Counter()
    for job_size in jobs:
        n = job_size.job.iterations
        certain, terms = sum(certain for certain, _ in job_size.lasting), sum(terms for _, terms in job_size.lasting)
        kinds[job_size.links, _Sequence(n * len(job_size.lasting), n * certain, n * terms)] += 1
    for ((links, one), (others, two)), pairs in _pairs(kinds):
        common = len(links & others)
        if common and one.number and two.number:
            size.columns += pairs
            size.add(pairs * common, 3)
            _add_disjoint(size, pairs, one, two)


def _pairs(kinds: Counter[_Kind]) -> Iterator[tuple[tuple[_Kind, _Kind], int]]:
    """Yield every two kinds, and how many pairs of one of each there are."""
    for one, two in checking_deadline(combinations_with_replacement(kinds, 2)):
        yield (one, two), kinds[one] * (kinds[one] - 1) // 2 if one == two else kinds[one] * kinds[two]


def _add_disjoint(size: ProgramSize, times: int, one: _Sequence, two: _Sequence) -> None:
    """Count so many times the orders of the operations of one job among those of the other."""
    pairs, certain = times * one.number * two.number, times * one.certain * two.certain
    size.columns += pairs
    size.rows += 2 * pairs
    # A row of 3 and a row of 4 variables for each pair, besides the terms of ends that are sums.
    size.coefficients += 7 * pairs + times * (one.terms * two.number + two.terms * one.number)
    # Of pairs with an operation that may take no time: whether they meet and last.
    size.columns += pairs - certain
    size.add(pairs - certain, 4)
    size.add(3 * (pairs - certain), 2)
    # Where the windows leave one order.
    size.add(pairs, 2)
    monotone = one.certain * max(0, two.certain - 1) + two.certain * max(0, one.certain - 1)
    size.add(times * monotone, 2)


def _add_order(size: ProgramSize, network: RoutedNetwork, jobs: Sequence[JobSize]) -> None:
    """Count the rows that order jobs, servers and GPUs that are alike."""
    eligibility = network.eligibility
    size.add(sum(len(group) - 1 for group in identical_jobs(eligibility.operations)), 2)
    for servers in identical_servers(network):
        for s in servers[1:]:
            users = [job_size for job_size in jobs if s in job_size.gpus]
            most = len(eligibility.by_server[s])
            size.add(1, 2 * most * leading_digits(min(job_size.job.slots, most) for job_size in users))
    for s, gpus in enumerate(eligibility.by_server):
        size.add(len(gpus) - 1, 2 * leading_digits(1 for job_size in jobs if s in job_size.gpus))


def _add_loads(size: ProgramSize, eligibility: GpuEligibility, jobs: Sequence[JobSize]) -> None:
    """Count the loads of GPUs and links."""
    shapes: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for s, server in enumerate(eligibility.operations.cluster.servers):
        shapes[server.gpu_type, tuple(k for k, job_size in enumerate(jobs) if s in job_size.gpus)] += server.gpus
    for (gpu_type, inside), gpus in checking_deadline(shapes.items()):
        _add_load_rows(size, gpus, [_gpu_load(jobs[k], gpu_type) for k in inside])
    for k in range(len(eligibility.operations.cluster.links)):
        users = [job_size for job_size in jobs if k in job_size.links]
        _add_load_rows(size, 1, [(_ready(eligibility, job_size), 0, 1) for job_size in users])


def _gpu_load(job_size: JobSize, gpu_type: str) -> tuple[int, int, int]:
    """Return head, tail and variables of the blocks of a job on a GPU."""
    times = block_us(job_size.job, gpu_type)
    tails = tails_us(times, shortest_transfers(job_size.job, job_size.best))
    tail = min(tails[d - 1] - times[d - 1] for d in candidate_levels(job_size.job))
    return job_size.job.release_us, tail, job_size.distinct * job_size.choices


def _ready(eligibility: GpuEligibility, job_size: JobSize) -> int:
    """Return when a job's first bucket is ready at the earliest."""
    types = {eligibility.operations.cluster.servers[s].gpu_type for s in job_size.gpus}
    return job_size.job.release_us + min(block_us(job_size.job, gpu_type)[0] for gpu_type in types)


def _add_load_rows(size: ProgramSize, times: int, loads: Sequence[tuple[int, int, int]]) -> None:
    """Count so many times a row for every head and tail that some load reaches."""
    for head in checking_deadline(sorted({head for head, _, _ in loads})):
        of_tail: Counter[int] = Counter()
        for other, tail, terms in loads:
            if other >= head:
                of_tail[tail] += terms
        tails = sorted({tail for _, tail, _ in loads}, reverse=True)
        # Rows of smaller tails have the loads of larger ones, too.
        sums = [total for total in accumulate(of_tail[tail] for tail in tails) if total]
        size.rows += times * len(sums)
        size.coefficients += times * (sum(sums) + len(sums))
