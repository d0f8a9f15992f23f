"""Cyclic plans of jobs that share nothing, beside one another in one period."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.instance import Instance, in_a_period
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.phased.phases import Gpus, Timing
from jigsaw_opt.solvers.phased.shelves import sharing_groups
from jigsaw_opt.solvers.placement.layout import kind_of


class SideBySide:
    """Makes the cyclic plan of a phase of those of its parts: jobs that share a GPU or a link, directly or by others.

    `timing`: makes the cyclic plan of a part. `stop`: says whether the time for it is over.
    """

    def __init__(self, instance: Instance, timing: Timing, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._instance, self._timing, self._routes = instance, timing, Routes(instance.cluster)
        self._asked = {job.name: job for job in instance.data_parallel_jobs}
        self._servers = {server.name: server for server in instance.cluster.servers}
        self._look: dict[str, int] = {}
        self._like: dict[Hashable, tuple[Mapping[str, int], Gpus]] = {}
        self._soon: dict[Hashable, tuple[Plan, Plan]] = {}
        looks: dict[Hashable, int] = {}
        for job in instance.jobs:
            # A cyclic plan depends neither on the name of a job nor on its weight. Jobs that are equal but for them get
            # one number.
            look: Hashable = job.name if job.model is None else altered(in_a_period(job, 1), name="", weight=1)
            if isinstance(job.depth, FreeDepth) and job.depth.balance is not None:
                look = look, job.iterations  # A period has its share of the balance.
            self._look[job.name] = looks.setdefault(look, len(looks))

    def parts(self, gpus: Gpus) -> list[list[str]]:
        """Return the names of the jobs of each part."""
        return sharing_groups(self._instance, gpus, self._routes)

    def part(self, counts: Mapping[str, int], gpus: Gpus) -> Plan:
        """Return a cyclic plan of one part, the same for all that are alike; a job alone goes as fast as it can.

        `counts`: by name of a job of the part, its iterations in a period.
        """
        if self._stop():
            raise OutOfTimeError("no time was left for phases of jobs that move")
        key, names = self._likeness(counts, gpus)
        # The first part with a key is the one that is timed; all others take its plan, with their own names and GPUs.
        timed, there = self._like.setdefault(key, (counts, {name: tuple(gpus[name]) for name in counts}))
        plan = self._timing(timed, there)
        if len(counts) == 1:
            plan = self._as_soon(key, plan)
        own = dict(zip(self._likeness(timed, there)[1], names, strict=True))
        return plan.with_jobs(
            tuple(replace(job, name=own[job.name], gpus=tuple(gpus[own[job.name]])) for job in plan.jobs)
        )

    def _likeness(self, counts: Mapping[str, int], gpus: Gpus) -> tuple[Hashable, list[str]]:
        """Return a key that parts with the same cyclic plans share, and the jobs of the part in the order of that key.

        GPUs of a server are alike, and so are servers of a kind where a part has one.
        """
        names = sorted(counts, key=lambda name: (self._look[name], counts[name], name))
        # GPUs are numbered by first use, so that two parts with the same pattern of shared GPUs have the same key.
        number = {gpu: k for k, gpu in enumerate(dict.fromkeys(gpu for name in names for gpu in gpus[name]))}
        servers = dict.fromkeys(gpu.rsplit("/", 1)[0] for gpu in number)
        at = (
            kind_of(self._servers[next(iter(servers))])
            if len(servers) == 1
            else tuple(g.rsplit("/", 1)[0] for g in number)
        )
        return (at, *((self._look[name], counts[name], tuple(number[g] for g in gpus[name])) for name in names)), names

    def _as_soon(self, key: Hashable, plan: Plan) -> Plan:
        """Return the plan of a job alone with every operation as soon as it can be."""
        [job] = plan.jobs
        if not isinstance(job, JobPlan):
            return plan
        # The timer may have found a better plan meanwhile, whose operations have to be moved forward anew.
        if key not in self._soon or self._soon[key][0] is not plan:
            soon, end_us = self._soonest(job)
            made = Plan.of_jobs(plan.instance, "", "feasible", end_us, 0, end_us, (soon,))
            self._soon[key] = plan, made
        return self._soon[key][1]

    def _soonest(self, job: JobPlan) -> tuple[JobPlan, int]:
        """Return the same levels with every operation as soon as it can be, and the end of the last one."""
        asked = self._asked[job.name]
        model = self._instance.models[asked.model]
        types = [self._servers[gpu.rsplit("/", 1)[0]].gpu_type for gpu in job.gpus]
        ready_us = [asked.block_us(model.block_us(gpu_type)) for gpu_type in types]
        now, iterations = 0, []
        for iteration in job.iterations:
            placed = [*zip(iteration.blocks, ready_us, strict=True)]
            blocks = tuple(replace(b, start_us=now, end_us=now + ready[b.level - 1]) for b, ready in placed)
            free, transfers = now, []
            for transfer in iteration.transfers:
                bucket = transfer.bucket
                # Transfers of a job follow one another. A bucket waits for every worker whose level reaches it.
                start = max(free, now + max(ready[bucket - 1] for b, ready in placed if b.level >= bucket))
                free = start + transfer.end_us - transfer.start_us
                transfers.append(replace(transfer, start_us=start, end_us=free))
            iterations.append(replace(iteration, blocks=blocks, transfers=tuple(transfers)))
            now = max(free, *(block.end_us for block in blocks))
        return replace(job, iterations=tuple(iterations)), now

    def together(self, parts: Sequence[tuple[Plan, int]]) -> Plan:
        """Return a cyclic plan of parts that share nothing, each repeated some times.

        The period is that of the longest part. The others are stretched to it, which leaves their order as it is
        (specification: known-answers).
        """
        period_us = max(plan.objective * times for plan, times in parts)
        jobs = {job.name: job for plan, times in parts for job in _repeated(plan, times, period_us)}
        placed = tuple(jobs[job.name] for job in self._instance.jobs if job.name in jobs)
        return Plan.of_jobs(self._instance.name, "", "feasible", period_us, 0, period_us, placed)


def _repeated(plan: Plan, times: int, period_us: int) -> Iterator[JobPlan | TaskGraphJobPlan]:
    """Yield the jobs of a cyclic plan repeated some times, in a period that is no shorter than all of them."""
    own_us = plan.objective
    whole_us = own_us * times

    def start_of(moment: int) -> int:
        # What begins in a later period of its own begins in the same one of the longer periods. All idle time comes
        # after the last repetition.
        periods, rest = divmod(moment, whole_us)
        return periods * period_us + rest

    moves = [lambda start, by=number * own_us: start_of(start + by) for number in range(times)]
    yield from (job.moved(*moves) for job in plan.jobs)
