"""The order of a plan on every GPU and link, timed anew where some jobs stop and others are rerouted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.activities.capacities import capacity_arcs
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities, JobLevels, flatten, network_of
from jigsaw_opt.solvers.activities.presence import in_memory_order, most_present
from jigsaw_opt.solvers.activities.ranks import in_order
from jigsaw_opt.solvers.activities.repeating import earliest, repeated
from jigsaw_opt.solvers.activities.timetables import levels_of, starts_of, timetable_of
from jigsaw_opt.solvers.infeasibility.together import restrict


@dataclass(frozen=True, slots=True)
class KeptTiming:
    """Earliest times in the order of a plan.

    `flat`: all activities; those of jobs that stopped take no time. `period`: in microseconds; None on the finite
    horizon.
    """

    flat: FlatActivities
    starts: list[int]
    period: int | None


class KeptOrder:
    """The activities of a plan in its order. Jobs are numbered with the data-parallel ones before the task-graph ones.

    `operations`: the compiled instance. Its cluster has all GPUs of the plan. `timetable`: A plan whose placements and
    levels are right for the instance. Of its times only their order counts.
    """

    def __init__(self, operations: Operations, timetable: Timetable) -> None:
        self.operations, self._old = operations, timetable
        instance = operations.instance
        self.jobs: list[Job | TaskGraphJob] = [*instance.data_parallel_jobs, *instance.task_graph_jobs]
        server = {own.name: s for s, own in enumerate(operations.cluster.servers)}
        split = [[name.rpartition("/") for name in job.gpus] for job in timetable.plans]
        self._gpus = [[(server[name], int(k)) for name, _, k in names] for names in split]

    @classmethod
    def of(cls, instance: Instance, plan: Plan) -> KeptOrder:
        """Return the order of a plan."""
        # Compiling leaves a huge server only the GPUs that plans need; this plan may use others.
        operations = replace(compile_instance(instance), cluster=instance.cluster)
        return cls(operations, timetable_in(plan))

    @property
    def gpu_names(self) -> list[tuple[str, ...]]:
        """Return, by job, the names of its GPUs by worker or slot."""
        return [job.gpus for job in self._old.plans]

    @cached_property
    def servers(self) -> list[list[int]]:
        """Return, by job, the indices of its servers, ascending."""
        return [sorted({server for server, _ in gpus}) for gpus in self._gpus]

    @cached_property
    def starts(self) -> list[int]:
        """Return, by activity, its start in the plan, in microseconds."""
        return self._network.with_milestones(starts_of(self._old), self._old.period_us)

    @property
    def period_us(self) -> int | None:
        """Return the period of the plan in microseconds; None on the finite horizon."""
        return self._old.period_us

    @cached_property
    def _levels(self) -> list[JobLevels]:
        return levels_of(self._old)

    @cached_property
    def _network(self) -> ActivityNetwork:
        return network_of(self.operations, self._gpus, self._levels)

    @cached_property
    def flat(self) -> FlatActivities:
        """Return the activities without a failure, with `residents` where jobs may follow one another for memory."""
        return flatten(self._network, in_time=self.operations.has_scarce_holdings)

    @property
    def keeps_memory(self) -> bool:
        """Return whether memory holds the jobs in their order, whatever their durations."""
        flat = self.flat
        if not flat.residents:
            return min(flat.room) >= 0
        return all(most <= room for most, room in zip(most_present(flat, self.starts), flat.room, strict=True))

    @cached_property
    def begins(self) -> list[int]:
        """Return, by job, how many activities there are before it; all of them at the end."""
        return [*self._network.jobs, len(self._network.activities)]

    @cached_property
    def _order(self) -> list[int]:
        return in_order(self._in_job_order(self.flat, ()), self.starts)

    def _in_job_order(self, flat: FlatActivities, stopped: Collection[int]) -> FlatActivities:
        """Return activities with the waits between jobs that keep memory, but for jobs that stopped."""
        lengths = self.flat.duration_us
        return in_memory_order(flat, lengths, self.starts, stopped) if self.flat.residents else flat

    def timed(self, stopped: Sequence[int], rerouted: Sequence[int], routes: Routes) -> KeptTiming | None:
        """Return everything as early as the order permits; None where the order does not repeat within one period."""
        return self.timed_as(self.patched(stopped, rerouted, routes), stopped)

    def timed_as(self, flat: FlatActivities, stopped: Collection[int] = ()) -> KeptTiming | None:
        """Return the timing as `timed` does, for the activities with other durations, resources or waits."""
        if not flat.fits_alone:
            return None
        # What keeps cumulative capacities in the order of the plan, with the durations that activities have.
        waits = (arc._replace(length_us=flat.duration_us[arc.before]) for arc in self._capacity_arcs)
        flat = flat._replace(arcs=[*flat.arcs, *waits])
        if self._old.period_us is None:
            return KeptTiming(flat, earliest(self._in_job_order(flat, set(stopped)), self._order), None)
        found = repeated(flat, self._order, sum(flat.duration_us) + 1)
        return None if found is None else KeptTiming(flat, found[1], found[0])

    @cached_property
    def _capacity_arcs(self) -> list[Arc]:
        return capacity_arcs(self.flat, self.starts, self._old.period_us)

    def ends(self, timing: KeptTiming) -> list[int]:
        """Return, by job, its end in microseconds."""
        ends = [start + length for start, length in zip(timing.starts, timing.flat.duration_us, strict=True)]
        return [max(ends[first:last]) for first, last in zip(self.begins, self.begins[1:], strict=False)]

    def timetable(self, timing: KeptTiming, stopped: Sequence[int], routes: Routes) -> tuple[Operations, Timetable]:
        """Return the instance without the jobs that stopped, on what is left of the cluster, and their timetable.

        `routes`: routes of the cluster that is left; it has the servers of the old one.
        """
        kept = [job for job in range(len(self.jobs)) if job not in set(stopped)]
        left = self._restricted(kept, routes)
        gpus, begins = [self._gpus[job] for job in kept], [self.begins[job] for job in kept]
        levels = [self._levels[job] for job in kept if job < len(self._levels)]
        return left, timetable_of(left, begins, gpus, timing.starts, timing.period, levels)

    def longest(self, job: int, flat: FlatActivities) -> list[tuple[str, int]]:
        """Return each transfer of a job with its longest duration over all iterations, in microseconds.

        The transfers by name, or by number of the bucket.
        """
        blocks, names = self._operations_of(job)
        lengths = flat.duration_us[self.begins[job] : self.begins[job + 1]]
        size = len(blocks) + len(names)
        return [(name, max(lengths[len(blocks) + at :: size])) for at, name in enumerate(names)]

    def operation_name(self, activity: int) -> str:
        """Return what an activity is: a block, a transfer or a barrier, by its name or number."""
        job = self.flat.job[activity]
        blocks, transfers = self._operations_of(job)
        if activity in self._network.milestones:
            return "barrier"
        at = (activity - self.begins[job]) % (len(blocks) + len(transfers))
        kinds = ("worker", "bucket") if job < len(self.operations.jobs) else ("block", "transfer")
        if at < len(blocks):
            return f"{kinds[0]} {blocks[at]}"
        return f"{kinds[1]} {transfers[at - len(blocks)]}"

    def _operations_of(self, job: int) -> tuple[list[str], list[str]]:
        """Return the names of the blocks and transfers of an iteration; of a data-parallel job, the numbers."""
        count, operations = len(self.operations.jobs), self.operations
        if job < count:
            graph = operations.jobs[job]
            return [str(block.slot) for block in graph.blocks], [str(transfer.bucket) for transfer in graph.transfers]
        shape = operations.task_graphs[job - count].shape
        return [block.name for block in shape.blocks], [transfer.name for transfer in shape.transfers]

    def _restricted(self, kept: Sequence[int], routes: Routes) -> Operations:
        """Return some jobs on another cluster with the same servers."""
        names = {self.jobs[job].name for job in kept}
        every = self.operations.instance.jobs
        part = restrict(self.operations, [at for at, job in enumerate(every) if job.name in names])
        instance = altered(part.instance, cluster=routes.cluster)
        return replace(part, instance=instance, cluster=routes.cluster).with_routes(routes)

    def patched(self, stopped: Sequence[int], rerouted: Sequence[int], routes: Routes) -> FlatActivities:
        """Return the activities without those of some jobs, and with other transfers of others.

        `routes`: routes of the cluster that is left; it has the servers of the old one.
        """
        durations, resources = list(self.flat.duration_us), list(self.flat.resources)
        arcs = list(self._arcs)
        for job in stopped:
            place = slice(self.begins[job], self.begins[job + 1])
            size = place.stop - place.start
            durations[place], resources[place], arcs[job] = [0] * size, [()] * size, []
        if rerouted:
            gpus, levels = [self._gpus[job] for job in rerouted], self._levels
            rows = [levels[job] for job in rerouted if job < len(levels)]
            network = network_of(self._restricted(rerouted, routes), gpus, rows)
            now, link = flatten(network), self._links_of(routes)
            for job, first, last in zip(rerouted, network.jobs, [*network.jobs[1:], len(now.job)], strict=True):
                place = slice(self.begins[job], self.begins[job + 1])
                durations[place] = now.duration_us[first:last]
                resources[place] = [tuple(link.get(r, r) for r in used) for used in now.resources[first:last]]
                arcs[job] = []
            for arc in now.arcs:
                job = rerouted[now.job[arc.after]]
                shift = self.begins[job] - network.jobs[now.job[arc.after]]
                arcs[job].append(arc._replace(before=arc.before + shift, after=arc.after + shift))
        joined = [arc for own in arcs for arc in own]
        return self.flat._replace(duration_us=durations, resources=resources, arcs=joined)

    @cached_property
    def _arcs(self) -> list[list[Arc]]:
        """Return, by job, its arcs: which activity waits for which."""
        arcs: list[list[Arc]] = [[] for _ in self.jobs]
        for arc in self.flat.arcs:
            arcs[self.flat.job[arc.after]].append(arc)
        return arcs

    def _links_of(self, routes: Routes) -> dict[int, int]:
        """Return, by number of a link among the resources of another cluster, its number here."""
        gpus = self.operations.cluster.gpu_count
        number = {link.name: gpus + at for at, link in enumerate(self.operations.cluster.links)}
        return {gpus + at: number[link.name] for at, link in enumerate(routes.cluster.links)}


def timetable_in(plan: Plan) -> Timetable:
    """Return the timetable of a plan."""
    return Timetable.of(plan.jobs, plan.period_us)
