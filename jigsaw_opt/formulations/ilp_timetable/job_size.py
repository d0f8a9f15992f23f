"""The size of one job's part of the program, counted without building it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.formulations.program_files import FileKind
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import candidate_levels, fewest_contributors
from jigsaw_opt.problem.compiled.operations import OperationGraph

__all__ = ["JobSize", "ProgramSize", "add_job"]

_HEADER_BYTES = 200
"""Bytes of a file without rows and columns: its name and the heads of its sections."""


@dataclass(slots=True)
class ProgramSize:
    """Columns, rows and coefficients of a program.

    `coefficients`: number of pairs of a row and a column in it. `digits`: digits of the numbers in a name.
    """

    columns: int = 0
    rows: int = 0
    coefficients: int = 0
    digits: int = 1

    def add(self, rows: int, each: int) -> None:
        """Count rows with so many coefficients each."""
        self.rows += rows
        self.coefficients += rows * each

    def file_bytes(self, kind: FileKind) -> int:
        """Return about how large the file is: names and numbers are taken to be as long as they usually are."""
        column, row = 8 + self.digits, 12 + self.digits
        of_coefficient, of_row = (column + row + 6, 2 * row) if kind == "mps" else (column + 8, row + 12)
        return _HEADER_BYTES + self.coefficients * of_coefficient + self.rows * of_row + self.columns * 3 * column


class JobSize(NamedTuple):
    """The numbers of one job on which the program's size depends.

    `gpus`: GPUs that it may use, by server. `steps`: steps of the order encodings of its rate and its latency.
    `chosen`: whether levels decide the duration of each bucket's transfer, which then is a variable. `lasting`: for
    each transfer of an iteration that may last, whether it certainly does, and the variables in its duration.
    """

    job: OperationGraph
    gpus: dict[int, int]
    choices: int
    links: frozenset[int]
    steps: int
    best: Channel
    chosen: tuple[bool, ...]
    lasting: tuple[tuple[bool, int], ...]

    @property
    def places(self) -> int:
        """Number of GPUs that it may use."""
        return sum(self.gpus.values())

    @property
    def distinct(self) -> int:
        """Iterations whose levels are variables of their own."""
        return self.job.iterations if self.choices > 1 else 1


def add_job(
    size: ProgramSize,
    network: RoutedNetwork,
    job: OperationGraph,
    gpus: dict[int, int],
    routes: dict[int, list[tuple[int, int]]],
) -> JobSize:
    """Count everything that concerns one job alone, and return what the rest of the size depends on.

    `gpus`: number of GPUs that it may use, by server. `routes`: by link, the pairs of servers whose route uses it.
    """
    _add_placement(size, network.eligibility, job, gpus)
    _add_depth(size, job, sum(gpus.values()))
    _add_iterations(size, job.iterations, sum(gpus.values()))
    for link, pairs in routes.items():
        _add_link(size, network, job, gpus, link, pairs)
    steps, best = _add_channel(size, network, job, gpus, routes)
    found = JobSize(
        job,
        gpus,
        len(candidate_levels(job)),
        frozenset(routes),
        sum(steps),
        best,
        chosen := _add_durations(size, job, sum(gpus.values()), sum(steps)),
        _lasting(job, best, chosen, steps) if routes else (),
    )
    _add_exchanges(size, found)
    return found


def _add_placement(size: ProgramSize, eligibility: GpuEligibility, job: OperationGraph, gpus: dict[int, int]) -> None:
    places, component = sum(gpus.values()), eligibility.routes(job).component
    size.columns += places + len(gpus)
    size.add(1, places)
    _add_any(size, gpus.values())
    parts = len({component[s] for s in gpus})
    if parts > 1:
        size.columns += parts
        size.add(1, parts)
        size.rows, size.coefficients = size.rows + parts, size.coefficients + places + parts
    size.add(sum(1 for _ in eligibility.routes(job).apart(gpus)), 2)


def _add_any(size: ProgramSize, counts: Iterable[int]) -> None:
    """Count a variable that is 1 where one of so many others is, for each count."""
    for count in counts:
        size.add(1, count + 1)
        size.add(count, 2)


def _add_depth(size: ProgramSize, job: OperationGraph, places: int) -> None:
    n, choices = job.iterations, len(candidate_levels(job))
    # With a single level, the variable of the place says the level, too.
    literals = n * choices * places if choices > 1 else places
    if choices > 1:
        size.columns += literals
        size.add(n * places, choices + 1)
    if job.rule.multiset is None:
        size.add(n, places)
        size.add(1, literals)
        if job.rule.balance is not None:
            size.columns += 1
            size.add(places, literals // places + 2)
            size.add(places, literals // places + 1)
    elif choices > 1:
        size.add(n * choices, places)


def _add_iterations(size: ProgramSize, n: int, places: int) -> None:
    size.columns += n + n * places
    size.add((n - 1) * (1 + places), 2)


def _add_link(
    size: ProgramSize,
    network: RoutedNetwork,
    job: OperationGraph,
    gpus: dict[int, int],
    link: int,
    pairs: Sequence[tuple[int, int]],
) -> None:
    component, side = network.eligibility.routes(job).component, network.side(job, link)
    size.columns += 1
    if side is None:
        in_part = Counter(component[s] for s in gpus)
        for first, _ in pairs:
            size.add(2, 3)
            size.coefficients += in_part[component[first]] - 2
        return
    part = {component[s] for s in side}
    inside = [s for s in gpus if component[s] in part]
    near = sum(s in side for s in inside)
    wide = [count for count in (near, len(inside) - near) if count != 1]
    size.columns += len(wide)
    _add_any(size, wide)
    size.add(1, 3)
    size.add(2, 2)


def _add_channel(
    size: ProgramSize, network: RoutedNetwork, job: OperationGraph, gpus: dict[int, int], links: Iterable[int]
) -> tuple[tuple[int, int], Channel]:
    """Count order encodings; return their steps and the best channel."""
    if job.slots < 2:
        return (0, 0), Channel((), 1, 0)
    cluster = network.cluster
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us) for k in links]
    for s, count in gpus.items():
        if count > 1:
            size.columns += 1
            size.add(1, count + 1)
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us))
    rates, latencies = [rate for rate, _ in uses], [latency for _, latency in uses]
    best = Channel((), max(rates), min(latencies))
    steps = (len(set(rates)) - 1, len(set(latencies)) - 1)
    size.columns += sum(steps)
    size.add(sum(max(0, step - 1) for step in steps), 2)
    size.add(sum(rate < best.rate for rate in rates) + sum(latency > best.latency_us for latency in latencies), 2)
    return steps, best


def _add_durations(size: ProgramSize, job: OperationGraph, places: int, steps: int) -> tuple[bool, ...]:
    """Count the variables and rows of durations; return for each bucket whether levels decide it."""
    choices, n, chosen = len(candidate_levels(job)), job.iterations, []
    for operation in job.transfers:
        b = operation.bucket
        fewest = fewest_contributors(job, b)
        chosen.append(job.rule.multiset is None and fewest < job.slots)
        if not chosen[-1]:
            continue
        more = job.slots - fewest
        size.columns += n * (1 + more)
        size.add(n * max(0, more - 1), 2)
        size.add(n, places * (choices - b + 1) + more)
        size.add(n, 1 + (steps or more))
        size.add(n * more * (steps > 0), 2 + steps)
    return tuple(chosen)


def _lasting(
    job: OperationGraph, best: Channel, chosen: Sequence[bool], steps: tuple[int, int]
) -> tuple[tuple[bool, int], ...]:
    """Return the transfers of an iteration that may last for some time, as in `JobSize`."""
    certain = [operation.payload_bytes > 0 or best.latency_us > 0 for operation in job.transfers]
    return tuple(
        (certainly, 1 if variable else sum(steps))
        for certainly, variable in zip(certain, chosen, strict=True)
        if certainly or steps[1]
    )


def _add_exchanges(size: ProgramSize, job_size: JobSize) -> None:
    """Count the variables and rows of transfers' starts, and the rows of readiness."""
    n, buckets = job_size.job.iterations, len(job_size.chosen)
    size.add(n * job_size.places, 2 + job_size.choices)
    if job_size.links:
        size.columns += n * buckets
        size.add(n * buckets, 2)
        size.coefficients += n * sum(1 if chosen else job_size.steps for chosen in job_size.chosen)
        size.add(n * job_size.places * buckets, 2 + job_size.choices)
    elif job_size.steps or any(job_size.chosen):
        size.add(n * job_size.places * buckets, 2 + job_size.choices)
        # The steps of an order encoding stand in a row once, whatever number of durations they are in.
        later = sum(sum(job_size.chosen[b:]) + job_size.steps for b in range(buckets))
        size.coefficients += n * job_size.places * later
