"""Placements with the numbers of iterations at each level, of which only loads and lengths of jobs are looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import (
    candidate_levels,
    exchange_over,
    least_transfer_us,
    tails_us,
    usable_gpus,
)
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import deepest_level, most_bytes
from jigsaw_opt.solvers.engines.compiled import fastest, run_in_parts
from jigsaw_opt.solvers.engines.magnitude import orders_fit
from jigsaw_opt.solvers.kernels.load_annealing import LoadJobs, LoadState, anneal_loads
from jigsaw_opt.solvers.kernels.randomness import EXPONENTIALS, LARGEST_SEED
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import kind_of

Placed = Mapping[int, Mapping[int, int]]
"""A job on its GPUs: the number of iterations at each level, by GPU."""
_PART, _SLOW_PART = 20_000, 500
"""Steps until work is counted, and between two checks of the clock where Python takes them."""


class LoadSearch:
    """Anneals placements and numbers of levels until no GPU has much more than a target.

    Links count as if every server had its own, by the least that a job on several servers needs of them. Whether a
    schedule keeps to the loads is left open.
    """

    def __init__(self, data: ProblemData, rng: random.Random) -> None:
        self.data, self._rng, operations = data, rng, data.operations
        self._anneal, self._own = fastest(anneal_loads, orders_fit(operations))
        self._part = _SLOW_PART if self._anneal is anneal_loads else _PART
        servers, jobs = operations.cluster.servers, operations.jobs
        kinds: dict[tuple[str, int, int, int], int] = {}
        kind = [kinds.setdefault(kind_of(server), len(kinds)) for server in servers]
        self._most = max(job.levels for job in jobs)
        self._tight = int(most_bytes(jobs) > min(data.layout.memory))
        self._kind_of = [kind[s] for s in data.layout.server_of]
        self._exponentials = self._own(EXPONENTIALS)
        self._block_at, self._block, self._path = list[int](), list[int](), list[int]()
        self._ring, widest = list[int](), max(map(len, data.layout.on_server))
        for job in jobs:
            across = operations.crossing(job, usable_gpus(operations, job))
            self._ring.append(self._ring_us(job, across))
            for gpu_type, memory, bandwidth, latency_us in kinds:
                inside = Channel((), bandwidth, latency_us)
                self._add_blocks(job, gpu_type, memory, (across if job.slots > widest else None) or inside)
        self._jobs = LoadJobs(
            first=[0, *accumulate(job.slots for job in jobs)],
            job=[index for index, job in enumerate(jobs) for _ in range(job.slots)],
            levels=[job.levels for job in jobs],
            rule=[_exchanges(job) for job in jobs],
            least_sum=[job.rule.min_total for job in jobs],
            least_deep=[job.rule.min_contributors * job.iterations for job in jobs],
            balance=[-1 if job.rule.balance is None else job.rule.balance for job in jobs],
            still=[0] * len(jobs),
            release=[job.release_us for job in jobs],
            state=[job.state_bytes for job in jobs],
            ring=self._ring,
            block_at=self._block_at,
            block=self._block,
            path=self._path,
            activation=[size for job in jobs for size in _padded(job.activation_bytes, self._most)],
            gpu_at=[0, *accumulate(map(len, data.layout.on_server))],
            kind=kind,
            server=data.layout.server_of,
            memory=data.layout.memory,
            most=[self._most],
        )

    @property
    def workers(self) -> int:
        """Return the number of workers of all jobs."""
        return len(self._jobs.job)

    def annealed(
        self,
        placed: Sequence[Placed],
        steps: int,
        temperature: float,
        target: int,
        link_price: float,
        scope: int,
        stop: Callable[[int], bool],
    ) -> list[Placed]:
        """Return a placement of which less exceeds the target, as far as some steps find one.

        `temperature`: what the first steps may add to the sum of squares of all excesses over the target, as shares of
        it; it falls to 0. `target`: in microseconds. `link_price`: price of a link that is taken for as long as the
        target. `scope`: as the kernel has it. `stop`: called now and then with the number of steps since; true ends
        the run.
        """
        layout, jobs, most = self.data.layout, self._jobs, self._most
        gpu = [gpu for at in placed for gpu in at]
        count = [levels.get(level, 0) for at in placed for levels in at.values() for level in range(1, most + 1)]
        states = LoadState(
            gpu=gpu,
            iterations=count,
            work=[0] * len(gpu),
            length=[0] * len(gpu),
            load=list(layout.load),
            uplink=[0] * len(layout.on_server),
            there=[0] * (len(placed) * len(layout.on_server)),
            servers=[0] * len(placed),
            size=[0] * len(layout.gpus),
            on=[0] * (len(layout.gpus) * len(placed)),
            log=[0] * (16 * max(map(len, placed)) + 8),
            rng=[self._rng.randint(1, LARGEST_SEED)],
            best_gpu=list(gpu),
            best_iterations=list(count),
            cost=[0.0, 0.0, link_price],
        )
        flat, state = self._own(jobs._replace(still=self._still(placed))), self._own(states)

        def run(done: int, count: int) -> tuple[int, int]:
            numbers = done, count, steps, temperature, float(target), self._tight, scope
            taken = self._anneal(flat, state, *numbers, self._exponentials)
            return taken, taken

        run_in_parts(run, steps, _PART, self._part, stop)
        return self._found(state, [len(at) for at in placed])

    def _found(self, state: LoadState, widths: Sequence[int]) -> list[Placed]:
        gpus, counts, at, most = list(map(int, state.best_gpu)), list(map(int, state.best_iterations)), 0, self._most
        found: list[Placed] = []
        for width in widths:
            rows = [counts[k * most : (k + 1) * most] for k in range(at, at + width)]
            own = [{level: n for level, n in enumerate(row, 1) if n} for row in rows]
            found.append(dict(zip(gpus[at : at + width], own, strict=True)))
            at += width
        return found

    def _still(self, placed: Sequence[Placed]) -> list[int]:
        """Return which jobs stay on their GPUs, as some are not deep enough for all levels, and which on servers.

        A job that limits its progress stays, too: the numbers of its levels do not tell what its iterations are worth.
        """
        kinds, found = max(self._kind_of) + 1, []
        for index, at in enumerate(placed):
            last = self.data.operations.jobs[index].levels - 1
            shallow = any(self._block[self._block_at[index * kinds + self._kind_of[gpu]] + last] < 0 for gpu in at)
            limited = self.data.operations.jobs[index].rule.progress is not None
            if shallow or limited or index in self.data.layout.held:
                found.append(2)
            else:
                several = len({self.data.layout.server_of[gpu] for gpu in at}) > 1
                found.append(int(several and self._ring[index] < 0))
        return found

    def _ring_us(self, job: OperationGraph, across: Channel | None) -> int:
        """Return how long a job on several servers takes their links at least, or -1 where some are not joined.

        `across`: the best channel over several servers, if there is one.
        """
        cluster = self.data.operations.cluster
        routes, servers = self.data.operations.routes.under(job.route_policy), range(len(cluster.servers))
        if across is None or len({routes.component[s] for s in servers}) > 1 or any(routes.apart(servers)):
            return -1
        return least_transfer_us(job, exchange_over(job, across))

    def _add_blocks(self, job: OperationGraph, gpu_type: str, memory: int, channel: Channel) -> None:
        """Add the times of a job's levels on a kind of server; -1 for what its rule or the memory excludes."""
        deepest = deepest_level(job, memory) if gpu_type in job.gpu_types else 0
        self._block_at.append(len(self._block) if deepest else -1)
        if not deepest:
            return
        times = job.blocks[0].duration_us[gpu_type]
        allowed = candidate_levels(job) if job.rule.multiset is None else job.rule.multiset
        self._block += [time if level <= deepest and level in allowed else -1 for level, time in enumerate(times, 1)]
        self._path += tails_us(times, exchange_over(job, channel).shortest if job.slots > 1 else ())


def _exchanges(job: OperationGraph) -> int:
    """Return how the numbers of levels of a job may change: 0 for not at all, 1 for by exchanges, 2 for freely."""
    if job.rule.progress is not None:
        return 0
    return 2 if job.rule.multiset is None else int(len({*job.rule.multiset}) > 1)


def _padded(numbers: Sequence[int], size: int) -> list[int]:
    return [*numbers, *[0] * (size - len(numbers))]
