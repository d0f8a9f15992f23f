"""What the failure of each part of a cluster does to a plan, and what is left without it.

A phase that is repeated is a cyclic plan, whose least period in its order is that of any cyclic plan after a failure.
Phases keep their repetitions and follow one another as before, each as early as the one before it and the releases of
its jobs let it.

A GPU uses no more memory than before: memory intervals begin and end with blocks on their GPU, so the order there,
which is kept, determines which of them overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Literal, NamedTuple, get_args

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.cluster import Cluster, Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Phase, PhaseGroup, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, KeptTiming
from jigsaw_opt.solvers.resolve.values import ends_us, objective_at

PartKind = Literal["link", "switch", "server"]
KINDS: tuple[PartKind, ...] = get_args(PartKind)


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A link, switch or server that failed."""

    kind: PartKind
    name: str


def parts_of(cluster: Cluster, kinds: Collection[str] = KINDS) -> list[FailedPart]:
    """Return all parts of some kinds, in the order of the cluster."""
    names: dict[PartKind, Iterable[str]] = {
        "link": (link.name for link in cluster.links),
        "switch": cluster.switches,
        "server": (server.name for server in cluster.servers),
    }
    return [FailedPart(kind, name) for kind in KINDS if kind in kinds for name in names[kind]]


def dead_links(cluster: Cluster, failed: Iterable[FailedPart]) -> frozenset[str]:
    """Return the names of the links that failed, and of those at a switch or server that did."""
    links = {part.name for part in failed if part.kind == "link"}
    nodes = {part.name for part in failed if part.kind != "link"}
    return frozenset(link.name for link in cluster.links if link.name in links or not nodes.isdisjoint(link.ends))


def left_of(cluster: Cluster, failed: Collection[FailedPart]) -> Cluster:
    """Return the cluster without parts that failed; a switch that failed stays, without links."""
    return cluster.without(dead_links(cluster, failed), {part.name for part in failed if part.kind == "server"})


_Ways = tuple[tuple[str, ...], ...]
"""Names of links of the routes between any two servers of a job."""


class TransferChange(NamedTuple):
    """A transfer of a job that is rerouted.

    `transfer`: its name; in a data-parallel job, the number of its bucket. `old_us, new_us`: its longest duration over
    all iterations before and after, in microseconds.
    """

    transfer: str
    old_us: int
    new_us: int


@dataclass(frozen=True, slots=True)
class PhaseLoss:
    """Effect of a failure on a phase.

    `group, phase`: numbers of the group, and of the phase in it, from 0. `stopped`: jobs of the phase that stop.
    `old_us, new_us`: its period before and after, in microseconds; after it, None where none of its jobs runs, or their
    order does not repeat.
    """

    group: int
    phase: int
    stopped: tuple[str, ...]
    old_us: int
    new_us: int | None


@dataclass(frozen=True, slots=True)
class FailureEffect:
    """Effect of the failure of one part, or of two at once.

    `stopped`: jobs that cannot run where they are: on a server that failed, or no compliant route joins two of their
    servers. `rerouted`: for each other job whose routes change, the links of all its routes now. `transfers`: for each
    of these jobs, how long its transfers take. `objective`: makespan, weighted completion or period of the jobs that
    run, with the order of the plan kept on every GPU and link; None where no job runs, or the order does not repeat
    within one period. `broken`: jobs that miss their deadline or cycle-time limit: they run too long, or stop.
    `phases`: every phase that has a job that stops or is rerouted; None of a plan that does not count its repetitions.
    """

    failed: tuple[FailedPart, ...]
    stopped: tuple[str, ...]
    rerouted: dict[str, tuple[str, ...]]
    transfers: dict[str, tuple[TransferChange, ...]]
    objective: int | None
    broken: tuple[str, ...]
    phases: tuple[PhaseLoss, ...] | None = None

    @property
    def slowest(self) -> tuple[str, TransferChange] | None:
        """Return a job and the transfer of it that grows most; None where none grows."""
        grown = [
            (job, change) for job, own in self.transfers.items() for change in own if change.new_us > change.old_us
        ]
        return max(grown, key=lambda found: found[1].new_us - found[1].old_us, default=None)


class _Left(NamedTuple):
    """Jobs that stop, and the new routes of rerouted jobs, by number of the job: all that an effect depends on."""

    stopped: tuple[int, ...]
    rerouted: tuple[tuple[int, _Ways], ...]


class PhaseEffect(NamedTuple):
    """Effect of a failure on the jobs of one phase; `broken` are those that run and break a guarantee."""

    stopped: tuple[str, ...]
    rerouted: dict[str, tuple[str, ...]]
    transfers: dict[str, tuple[TransferChange, ...]]
    objective: int | None
    broken: tuple[str, ...]


class PhaseEffects:
    """Effects of failures on the jobs of one phase. What they have in common is computed once.

    `routes`: routes without links of some names; by default they are computed for each failure anew.
    """

    def __init__(self, order: KeptOrder, routes: Callable[[frozenset[str]], Routes] | None = None) -> None:
        self._order, self._instance = order, order.operations.instance
        self.cluster = self._instance.cluster
        self._routes = routes or (lambda dead: Routes(self._instance.cluster.without(dead)))
        ways = [self._ways(job, order.operations.routes) for job in range(len(order.jobs))]
        self._used = [frozenset(name for way in found or () for name in way) for found in ways]
        self._effects: dict[_Left, PhaseEffect] = {}

    @property
    def used_links(self) -> list[str]:
        """Return the links on routes of jobs, in the order of the cluster."""
        return [link.name for link in self._instance.cluster.links if any(link.name in used for used in self._used)]

    def of(self, failed: Sequence[FailedPart]) -> PhaseEffect:
        """Return the effect of the failure of some parts at once."""
        left, routes = self._left(failed)
        if left not in self._effects:
            self._effects[left] = self._effect(left, routes)
        return self._effects[left]

    def cause(self, failed: Sequence[FailedPart]) -> tuple[object, ...]:
        """Return which jobs stop, and the routes of those that are rerouted: all that an effect depends on."""
        return self._left(failed)[0]

    def links_after(self, failed: Sequence[FailedPart]) -> frozenset[str]:
        """Return the names of the links that the running jobs use after a failure."""
        left = self._left(failed)[0]
        ways = dict(left.rerouted)
        new = {name for found in ways.values() for way in found for name in way}
        return frozenset(new).union(
            *(used for job, used in enumerate(self._used) if job not in ways and job not in left.stopped)
        )

    def left(self, failed: Sequence[FailedPart]) -> tuple[Instance, Plan]:
        """Return the instance of the jobs that run on what is left of the cluster, and their plan, timed anew."""
        left, routes = self._left(failed)
        kept = [job for job in range(len(self._order.jobs)) if job not in set(left.stopped)]
        timing = self._order.timed(left.stopped, [job for job, _ in left.rerouted], routes) if kept else None
        if timing is None:
            raise ValueError("nothing is left to be timed")
        return self._plan(left, routes, timing, self._judged(kept, timing)[0])

    def stops(self, failed: Sequence[FailedPart]) -> bool:
        """Return whether some job stops, without timing anything."""
        return bool(self._left(failed)[0].stopped)

    def _left(self, failed: Sequence[FailedPart]) -> tuple[_Left, Routes]:
        cluster = self._instance.cluster
        dead = dead_links(cluster, failed)
        down = {part.name for part in failed if part.kind == "server"}
        routes = self._routes(dead)
        stopped, rerouted = [], []
        for job, used in enumerate(self._used):
            lost = any(cluster.servers[s].name in down for s in self._order.servers[job])
            # A route that is the least one stays so while other links fail.
            if not lost and used.isdisjoint(dead):
                continue
            ways = None if lost else self._ways(job, routes)
            if ways is None:
                stopped.append(job)
            else:
                rerouted.append((job, ways))
        return _Left(tuple(stopped), tuple(rerouted)), routes

    def _ways(self, job: int, routes: Routes) -> _Ways | None:
        """Return the routes between any two servers of a job; None where one is missing."""
        own, found = routes.under(self._order.jobs[job].route_policy), []
        for pair in combinations(self._order.servers[job], 2):
            route = own.between(*pair)
            if route is None:
                return None
            found.append(tuple(routes.cluster.links[link].name for link in route))
        return tuple(found)

    def _effect(self, left: _Left, routes: Routes) -> PhaseEffect:
        order, jobs = self._order, self._order.jobs
        stopped = tuple(jobs[job].name for job in left.stopped)
        rerouted = {jobs[job].name: tuple(dict.fromkeys(chain.from_iterable(ways))) for job, ways in left.rerouted}
        kept = [job for job in range(len(jobs)) if job not in set(left.stopped)]
        timing = order.timed(left.stopped, [job for job, _ in left.rerouted], routes) if kept else None
        if timing is None:
            return PhaseEffect(stopped, rerouted, {}, None, ())
        transfers = {jobs[job].name: self._changes(job, timing) for job, _ in left.rerouted}
        return PhaseEffect(stopped, rerouted, transfers, *self._judged(kept, timing))

    def _changes(self, job: int, timing: KeptTiming) -> tuple[TransferChange, ...]:
        before, after = (self._order.longest(job, flat) for flat in (self._order.flat, timing.flat))
        return tuple(TransferChange(name, old, new) for (name, old), (_, new) in zip(before, after, strict=True))

    def _judged(self, kept: Sequence[int], timing: KeptTiming) -> tuple[int, tuple[str, ...]]:
        """Return the objective of the jobs that run, and those of them that break a guarantee."""
        jobs = [self._order.jobs[job] for job in kept]
        if timing.period is not None:
            limited = [(job.name, job.pace_us * job.iterations) for job in jobs if job.pace_us is not None]
            return timing.period, tuple(name for name, most in limited if timing.period > most)
        all_ends = self._order.ends(timing)
        ends = [all_ends[job] for job in kept]
        late = [job.name for job, end in zip(jobs, ends) if job.deadline_us is not None and end > job.deadline_us]
        weighted = sum(job.weight * end for job, end in zip(jobs, ends, strict=True))
        return max(ends) if self._instance.objective == "makespan" else weighted, tuple(late)

    def _plan(self, left: _Left, routes: Routes, timing: KeptTiming, objective: int) -> tuple[Instance, Plan]:
        operations, timetable = self._order.timetable(timing, left.stopped, routes)
        instance, plans = operations.instance, {job.name: job for job in timetable.plans}
        jobs = tuple(plans[job.name] for job in instance.jobs)
        sha256 = instance_sha256(instance)
        return instance, Plan.of_jobs(instance.name, sha256, "feasible", objective, 0, timetable.period_us, jobs)


class FailureEffects:
    """Effects of failures on one plan.

    `instance, plan`: A plan that `jigsaw_opt.checking.check` accepts for the instance.
    """

    def __init__(self, instance: Instance, plan: Plan) -> None:
        plan.require_no_moves("what a failure does is found only where jobs stay on their GPUs")
        self._instance, self.cluster, self._is_phased = instance, instance.cluster, plan.is_phased
        self._effects = [
            [(phase, PhaseEffects(KeptOrder.of(*plan.alone(instance, phase)))) for phase in group.phases]
            for group in plan.groups
        ]

    def each(self, kinds: Collection[str] = KINDS, pairs: bool = False) -> Iterator[FailureEffect]:
        """Yield the effect of the failure of each part alone, in the order of the cluster, then of each pair.

        `pairs`: whether two parts fail at once, too. A pair that does the same as one of its parts alone is left out.
        """
        parts = parts_of(self.cluster, kinds)
        yield from (self.of((part,)) for part in parts)
        causes = {part: self._cause((part,)) for part in parts if pairs}
        for pair in combinations(parts, 2) if pairs else ():
            if self._cause(pair) not in [causes[part] for part in pair]:
                yield self.of(pair)

    def _cause(self, failed: Sequence[FailedPart]) -> tuple[object, ...]:
        """Return, by phase, what stops and what is rerouted."""
        return tuple(effects.cause(failed) for own in self._effects for _, effects in own)

    def of(self, failed: Sequence[FailedPart]) -> FailureEffect:
        """Return the effect of the failure of some parts at once."""
        by_phase = {
            (g, p): (phase, effects.of(failed))
            for g, own in enumerate(self._effects)
            for p, (phase, effects) in enumerate(own)
        }
        jobs, effects = self._instance.jobs, [effect for _, effect in by_phase.values()]
        stopped = {name for effect in effects for name in effect.stopped}
        rerouted = {name: way for effect in effects for name, way in effect.rerouted.items()}
        losses, objective = None, effects[0].objective
        broken = stopped.union(*(effect.broken for effect in effects))
        if self._is_phased:
            losses = tuple(
                PhaseLoss(*at, effect.stopped, phase.cycle_us, effect.objective)
                for at, (phase, effect) in by_phase.items()
                if effect.stopped or effect.rerouted
            )
            groups, lost = self._groups(failed)
            ends = ends_us([phase for group in groups for phase in group.phases])
            objective = objective_at(self._instance, ends) if ends and not lost else None
            late = (job.name for job in jobs if ends.get(job.name, 0) > (job.deadline_us or 0))
            broken = {*stopped, *lost, *late}
        return FailureEffect(
            tuple(failed),
            tuple(job.name for job in jobs if job.name in stopped),
            {job.name: rerouted[job.name] for job in jobs if job.name in rerouted},
            _transfers(effects),
            objective,
            tuple(job.name for job in self._instance.guaranteed_jobs if job.name in broken),
            losses,
        )

    def left(self, failed: Sequence[FailedPart]) -> tuple[Instance, Plan]:
        """Return the instance of the jobs that run on what is left of the cluster, and their plan, timed anew."""
        if not self._is_phased:
            return self._effects[0][0][1].left(failed)
        groups, lost = self._groups(failed)
        if lost or not groups:
            raise ValueError("no job runs, or the order of a group does not say when")
        ends = ends_us([phase for group in groups for phase in group.phases])
        jobs = tuple(job for job in self._instance.jobs if job.name in ends)
        left = altered(self._instance, cluster=left_of(self.cluster, failed), jobs=jobs)
        return left, Plan(left.name, instance_sha256(left), "feasible", objective_at(self._instance, ends), 0, groups)

    def _groups(self, failed: Sequence[FailedPart]) -> tuple[tuple[PhaseGroup, ...], set[str]]:
        """Return groups timed anew, and jobs that run in groups that cannot be timed any more.

        A group cannot be timed where a phase does not repeat, or a detour leads over a link of another group.
        """
        found, lost = [], set[str]()
        # Names of links that the jobs of each group use after the failure.
        links = [{name for _, effects in own for name in effects.links_after(failed)} for own in self._effects]
        for g, own in enumerate(self._effects):
            others = set[str]().union(*links[:g], *links[g + 1 :])
            running = {
                job.name for phase, effects in own for job in phase.jobs if job.name not in effects.of(failed).stopped
            }
            phases = None if links[g] & others else self._phases(own, failed)
            if phases is None:
                lost |= running
            elif phases:
                found.append(PhaseGroup(tuple(phases)))
        return tuple(found), lost

    def _phases(self, own: Sequence[tuple[Phase, PhaseEffects]], failed: Sequence[FailedPart]) -> list[Phase] | None:
        """Return the phases of a group timed anew; None where one does not repeat."""
        releases = {job.name: job.release_us for job in self._instance.jobs}
        found, now = list[Phase](), 0
        for phase, effects in own:
            effect = effects.of(failed)
            if len(effect.stopped) == len(phase.jobs):
                continue
            if effect.objective is None:
                return None
            jobs, period_us = phase.jobs, phase.period_us
            if effect.stopped or effect.rerouted:
                plan = effects.left(failed)[1]
                jobs, period_us = plan.jobs, plan.objective
            begins = [releases[job.name] - job.start_us for job in jobs]
            again = replace(phase, start_us=max(now, *begins), period_us=period_us, jobs=jobs)
            found.append(again)
            now = again.end_us
        return found


def _transfers(effects: Sequence[PhaseEffect]) -> dict[str, tuple[TransferChange, ...]]:
    """Return, by job, how long its transfers take at most over all phases."""
    found: dict[str, dict[str, TransferChange]] = {}
    for effect in effects:
        for job, changes in effect.transfers.items():
            own = found.setdefault(job, {})
            for change in changes:
                old = own.get(change.transfer, change)
                own[change.transfer] = TransferChange(
                    change.transfer, max(change.old_us, old.old_us), max(change.new_us, old.new_us)
                )
    return {job: tuple(own.values()) for job, own in found.items()}
