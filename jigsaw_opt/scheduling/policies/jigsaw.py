"""Jobs packed onto GPUs two by two, some of which stop backward passes early so that the other fits.

Whenever a job arrives or ends, the queue is packed anew (`jigsaw_opt.solvers.allocation.packing`). Jobs stand in order
of the GPU time that they still keep busy, the shortest first, which with the GPUs as one machine shared by rates has
the least sum of completion times: work on a job brings the ends of all jobs from it to the end of the queue nearer. So
the progress of a job, in GPU time that it takes alone at full depth, is worth the number of these jobs. An iteration
below full depth counts by the efficiency of its model; where that is unknown, jobs stay at full depth unless the user
asks for a depth rule, under which iterations count as whole ones then. On stages that
a trace gives, the groups of `interleave` run timetables instead of rotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jigsaw_opt.errors import missing_option, unsupported
from jigsaw_opt.formulations.packing.coscheduling import Coschedule, JobKind, busy_shares
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.depth import CHOICES, Depth, FullDepth, StaircaseDepth, chosen_depth
from jigsaw_opt.problem.efficiency import goodput_levels
from jigsaw_opt.problem.packing import PackingProblem, QueuedJobs, ServerType
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.placement.blocks import Blocks, Team
from jigsaw_opt.scheduling.placement.placing import too_wide
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policies.aging import AGING, HYSTERESIS, Aging
from jigsaw_opt.scheduling.policies.interleave import Interleaving
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation, Scheduler
from jigsaw_opt.solvers.allocation.packing.generation import ITERATIONS, Memory
from jigsaw_opt.solvers.allocation.packing.packing import PackedQueue, fill, pack

_CANDIDATES = 4.0
"""Jobs are packed from the front of the queue until they would keep so many times all GPUs busy."""
_ON = " on "
"""Separates a model and the types of GPU that it may have."""
_BY_GOODPUT = "goodput"
"""The depth of each pair that makes most progress, of full depth and the levels of least GPU-time for progress."""
_RULES = (_BY_GOODPUT, *CHOICES)


@dataclass(slots=True)
class JigsawScheduler:
    """The policy at work.

    `rule`: the choice (`chosen_depth`) of the depth rule of jobs that share GPUs, over the iterations of a timetable's
    period, or ``goodput``. Under the plain staircase every worker keeps its level for ever. `columns`: whether the
    packing is found by column generation, or by filling one server after the other. `hysteresis`: how many starts count
    as time that is left of a job that does not run. `aging`: which jobs stand at the front of the queue because they
    have waited for long.
    """

    setting: ClusterSetting
    rule: str
    columns: bool
    hysteresis: int
    aging: Aging
    types: tuple[ServerType, ...] = field(init=False)
    servers: tuple[tuple[int, ...], ...] = field(init=False)
    memory: Memory = field(init=False)
    empty: PackingProblem = field(init=False)
    busy: dict[JobKind, float] = field(init=False)

    def __post_init__(self) -> None:
        performance = self.setting.performance
        assert isinstance(performance, Profiled)
        self.types, self.servers = _types(self.setting)
        self.empty = PackingProblem(self.types, performance.models, ())
        self.busy = {}
        self.memory = Memory(performance.timetables)

    def refuses(self, job: TraceJob) -> str | None:
        """Return why a job can never run: no set of alike servers that it may have suffices.

        One that no links join enough GPUs for is not refused: it waits, as under other policies.
        """
        kind = self._kind(job)
        is_apart = self.setting.most_for(job, self.setting.most_joined()) < job.gpus
        lacks_links = is_apart and too_wide(self.setting, "jigsaw", job) is None
        if lacks_links or kind in self.busy or busy_shares(self.empty, [kind]):
            return None
        return (
            f"policy 'jigsaw' gives a job servers that are alike: of those that can run model {job.model!r}"
            f" none have the {job.gpus} GPUs that job {job.name!r} asks for"
        )

    def decide(self, observation: Observation) -> Decision:
        """Pack the jobs at the front of the queue."""
        joined = self.setting.most_joined(observation.down, observation.dead)
        able = [one for one in observation.jobs.values() if one.job.gpus <= self.setting.most_for(one.job, joined)]
        self._learn(self._kind(active.job) for active in able)
        order = sorted(able, key=self._left_us)
        order = self.aging.order(order, observation)
        front = self._front(order)
        classes = tuple(self._class(active, len(order) - place) for place, active in enumerate(front))
        problem = replace(self.empty, types=self._types_up(observation.down), classes=self.empty.classes + classes)
        packed = (pack if self.columns else fill)(problem, self.memory)
        numbers = [-1] * len(self.empty.classes) + [active.index for active in front]
        running = {index: active.share for index, active in observation.jobs.items() if active.share is not None}
        pairs = _Pairs(problem, packed, self.memory, dict(zip(numbers, problem.classes, strict=True)))
        teams = list(_reunited(list(_teams(packed, numbers)), running, pairs.pay))
        held = {job: share.gpus for job, share in running.items()}
        apart = self._apart(teams, problem.types)
        places = Blocks(self.setting, self.servers, held, observation.down, observation.dead).place(apart)
        if len(places) < len(apart) != len(teams):
            places = Blocks(self.setting, self.servers, held, observation.down, observation.dead).place(teams)
        shares = tuple(Share(team.jobs, gpus, pairs.depths(team)) for team, gpus in places.items())
        return Decision(shares, self.aging.next_us(observation, shares))

    def state(self) -> Plain:
        """Return the kinds of jobs so far and the patterns that start the next packing; timetables are found again."""
        recipes = [
            {"type": number, "servers": servers, "teams": [{"jobs": list(jobs), "copies": n} for jobs, n in teams]}
            for number, servers, teams in self.memory.recipes
        ]
        kinds = [{"model": kind.model, "gpus": kind.workers} for kind in self.busy]
        return {"kinds": kinds, "recipes": recipes, **self.aging.plain()}

    def restore(self, state: Plain, observation: Observation) -> None:
        """Restore the kinds of jobs and the patterns that the next packing begins with."""
        text, gpus = {"type": "string"}, whole(self.setting.gpu_count, 1)
        team = fields(jobs=listed(text, 1, 2), copies=gpus)
        number, servers = whole(len(self.types) - 1), whole(len(self.setting.cluster.servers), 1)
        recipe = fields(type=number, servers=servers, teams=listed(team, 1))
        kind = fields(model=text, gpus=gpus)
        checked(state, fields(kinds=listed(kind), recipes=listed(recipe), **self.aging.shape()))
        self.aging.restore(state, observation)
        self._restore_kinds(state["kinds"], observation)
        widths = {c.name: c.workers for c in self.empty.classes}
        # Patterns of jobs that have ended are not used again, and how wide these were is no longer known.
        widths |= {str(k): observation.jobs[k].job.gpus if k in observation.jobs else 0 for k in observation.known}
        for tree in state["recipes"]:
            own, teams = self.types[tree["type"]], tree["teams"]
            if not all(name in widths for team in teams for name in team["jobs"]):
                raise ValueError("a pattern is of jobs that there are not")
            wanted = sum(team["copies"] * max(widths[name] for name in team["jobs"]) for team in teams)
            if tree["servers"] > own.count or wanted > tree["servers"] * own.server.gpus:
                raise ValueError("a pattern takes more than its servers have")
            pattern = tuple((tuple(team["jobs"]), team["copies"]) for team in teams)
            self.memory.recipes[tree["type"], tree["servers"], pattern] = None

    def _restore_kinds(self, trees: Sequence[Plain], observation: Observation) -> None:
        """Learn the kinds in the order in which they came, which is that of the coschedules."""
        own_types = {own.server.gpu_type for own in self.types}
        for tree in trees:
            name, _, types = tree["model"].rpartition(_ON)
            if name in self.empty.models and own_types.issuperset(types.split("|")):
                self._only_on(name, types.split("|"))
        if not all(tree["model"] in self.empty.models for tree in trees):
            raise ValueError("a kind is of a model that there is not")
        kinds = [self._kind_of(tree["model"], tree["gpus"]) for tree in trees]
        # A job that has never fitted on what was up is known, and its kind is not.
        running = {self._kind(observation.jobs[index].job) for index in observation.running_as_decided}
        if (
            len(set(kinds)) < len(kinds)
            or not running <= set(kinds)
            or len(busy_shares(self.empty, kinds)) < len(kinds)
        ):
            raise ValueError("the kinds are not those of jobs that run or have fitted, each once")
        self._learn(kinds)

    def _learn(self, kinds: Iterable[JobKind]) -> None:
        """Note kinds of jobs that come for the first time.

        The packing has a class without jobs for each, so that the coschedules stay the same when the last of a kind
        ends.
        """
        new = [kind for kind in dict.fromkeys(kinds) if kind not in self.busy]
        classes = (QueuedJobs(f"{k.model}/{k.workers}", k.model, k.workers, 0, 0.0, k.depths) for k in new)
        self.empty = replace(self.empty, classes=(*self.empty.classes, *classes))
        self.busy.update(busy_shares(self.empty, new))

    def _types_up(self, down: frozenset[int]) -> tuple[ServerType, ...]:
        """Return the types, each with the number of servers that its GPUs that are up would fill, rounded up."""
        sizes = (sum(gpu not in down for k in own for gpu in self.setting.gpus_of[k]) for own in self.servers)
        return tuple(
            replace(own, count=ceil_div(gpus, own.server.gpus)) for own, gpus in zip(self.types, sizes, strict=True)
        )

    def _apart(self, teams: Sequence[Team], types: Sequence[ServerType]) -> list[Team]:
        """Return the same jobs, as many on own GPUs as there are GPUs left over: sharing slows both down."""
        counts = [own.count * own.server.gpus for own in types]
        for team in teams:
            counts[team.type] -= team.gpus
        apart: list[Team] = []
        for team in teams:
            if len(team.jobs) == 2 and counts[team.type] >= team.gpus:
                counts[team.type] -= team.gpus
                apart += [replace(team, jobs=(job,)) for job in team.jobs]
            else:
                apart.append(team)
        return apart

    def _kind(self, job: TraceJob) -> JobKind:
        return self._kind_of(self._model_of(job), job.gpus)

    def _model_of(self, job: TraceJob) -> str:
        """Return the name of a job's model: where it may not have all types, of one without times on the others."""
        allowed = self.setting.pool_choice.types_of(job)
        if {own.server.gpu_type for own in self.types} <= {*allowed}:
            return job.model
        return self._only_on(job.model, allowed)

    def _only_on(self, name: str, types: Sequence[str]) -> str:
        """Return the name under which the packing knows a model without times on other types."""
        alias = f"{name}{_ON}{'|'.join(types)}"
        if alias not in self.empty.models:
            model = self.empty.models[name]
            segments = (
                altered(
                    one,
                    forward_us={kind: us for kind, us in one.forward_us.items() if kind in types},
                    backward_us={kind: us for kind, us in one.backward_us.items() if kind in types},
                )
                for one in model.segments
            )
            only = altered(model, segments=tuple(segments))
            self.empty = replace(self.empty, models={**self.empty.models, alias: only})
        return alias

    def _kind_of(self, model: str, gpus: int) -> JobKind:
        return JobKind(model, gpus, self._depths(model, gpus) if gpus > 1 else (FullDepth(),))

    def _depths(self, name: str, gpus: int) -> tuple[Depth, ...]:
        model = self.empty.models[name]
        if self.rule != _BY_GOODPUT:
            return (chosen_depth(self.rule, gpus, model.depth, ITERATIONS),)
        if model.efficiency is None:
            return (FullDepth(),)
        known = {own.server.gpu_type for own in self.types}.intersection(model.gpu_types)
        found = {goodput_levels(model.efficiency, model.block_us(kind), gpus) for kind in known}
        return (FullDepth(), *map(StaircaseDepth, sorted(found - {(model.depth,) * gpus})))

    def _left_us(self, active: JobState) -> tuple[float, int]:
        """Return the GPU time that the job still keeps busy, with that of weighed starts if it does not run."""
        kind = self._kind(active.job)
        alone_us = self.setting.performance.alone_us(active.job) * (active.left / active.work)
        start_us = 0 if active.share is not None else self.hysteresis * self.setting.restart_of(active.job)
        return active.job.gpus * (self.busy[kind] * alone_us + start_us), active.index

    def _front(self, order: Sequence[JobState]) -> list[JobState]:
        room, front = _CANDIDATES * self.setting.gpu_count, []
        for active in order:
            front.append(active)
            room -= active.job.gpus * self.busy[self._kind(active.job)]
            if room <= 0.0:
                break
        return front

    def _class(self, active: JobState, worth: int) -> QueuedJobs:
        kind = self._kind(active.job)
        value = float(worth * kind.workers)
        return QueuedJobs(str(active.index), kind.model, kind.workers, 1, value, kind.depths)


class _Pairs:
    """Pairs of jobs on servers of a type, with the depths that make most of them by the timetables of a packing.

    `classes`: class of each job, by its number.
    """

    def __init__(
        self, problem: PackingProblem, packed: PackedQueue, memory: Memory, classes: Mapping[int, QueuedJobs]
    ) -> None:
        self._problem, self._timetables, self._classes = problem, memory.timetables, classes
        self._known: dict[tuple[int, tuple[JobKind, ...]], list[Coschedule]] = {}
        for number, coschedule in zip(packed.types, packed.coschedules, strict=True):
            self._known.setdefault((number, coschedule.kinds), []).append(coschedule)

    def pay(self, team: Team) -> bool:
        """Return whether two jobs get on together at least as fast as in turn, each at full depth."""
        return self._best(team) is not None

    def depths(self, team: Team) -> tuple[Depth, ...]:
        """Return the depth rules of the jobs of a team; none for one job at full depth."""
        found = self._best(team) if len(team.jobs) > 1 else None
        return () if found is None else found[2]

    def _kind(self, job: int) -> JobKind:
        own = self._classes[job]
        return JobKind(own.model, own.workers, own.depths)

    def _best(self, team: Team) -> tuple[float, tuple[float, ...], tuple[Depth, ...]] | None:
        """Return the most that two jobs are worth together, with the rate and depth of each; None if not at all."""
        kinds, best = tuple(map(self._kind, team.jobs)), None
        turned = (team.type, kinds) not in self._known
        jobs = team.jobs[::-1] if turned else team.jobs
        weights = [self._classes[job].weight for job in jobs]

        def worth(rates: Sequence[float]) -> float:
            return sum(weight * rate for weight, rate in zip(weights, rates, strict=True))

        known = self._known.get((team.type, kinds[::-1] if turned else kinds), [])
        for coschedule in sorted(known, key=lambda one: -worth(one.rates(one.least_us))):
            if best is not None and worth(coschedule.rates(coschedule.least_us)) <= best[0]:
                break
            whole_us = self._timetables.whole_us(self._problem, team.type, coschedule)
            if whole_us is None or not coschedule.pays(whole_us):
                continue
            if best is None or worth(coschedule.rates(whole_us)) > best[0]:
                rates, depths = coschedule.rates(whole_us), coschedule.depths
                best = worth(rates), rates[::-1] if turned else rates, depths[::-1] if turned else depths
        return best


def _types(setting: ClusterSetting) -> tuple[tuple[ServerType, ...], tuple[tuple[int, ...], ...]]:
    """Return servers that are alike, by hardware and by their fastest link."""
    cluster = setting.cluster
    alike: dict[ServerType, list[int]] = {}
    for number, server in enumerate(cluster.servers):
        link = max((k for k in cluster.links if server.name in k.ends), key=lambda k: k.bandwidth, default=None)
        speed = (0, 0) if link is None else (link.bandwidth, link.latency_us)
        alike.setdefault(ServerType(replace(server, name="server"), 1, *speed), []).append(number)
    types = tuple(replace(own, count=len(numbers)) for own, numbers in alike.items())
    return types, tuple(tuple(numbers) for numbers in alike.values())


def _teams(packed: PackedQueue, numbers: Sequence[int]) -> Iterator[Team]:
    for pattern, copies in packed.patterns:
        for team, count in pattern.teams:
            jobs = tuple(numbers[c] for c in team.classes)
            for _ in range(copies * count):
                yield Team(jobs, packed.coschedules[team.coschedule].site.gpus, pattern.type)


def _reunited(teams: Sequence[Team], running: Mapping[int, Share], together: Callable[[Team], bool]) -> Iterator[Team]:
    """Yield the same jobs in teams, those that are paired anyway with the one that they share GPUs with already.

    `together`: whether two jobs can share GPUs.
    """
    pairs: dict[tuple[int, int], list[Team]] = {}
    for team in teams:
        if len(team.jobs) == 2:
            pairs.setdefault((team.type, team.gpus), []).append(team)
        else:
            yield team
    for (number, gpus), old in pairs.items():
        new = [Team(jobs, gpus, number) for jobs in _couples([job for team in old for job in team.jobs], running)]
        yield from new if all(map(together, new)) else old


def _couples(jobs: Sequence[int], running: Mapping[int, Share]) -> Iterator[tuple[int, int]]:
    """Yield pairs: of jobs that share GPUs, then of one that has GPUs and one that has none, then of the others."""
    left = dict.fromkeys(jobs)
    for job in jobs:
        partner = next((k for k in running[job].jobs if k != job), job) if job in running else job
        if job in left and partner != job and partner in left:
            del left[job], left[partner]
            yield job, partner
    placed, new = [j for j in left if j in running], [j for j in left if j not in running]
    yield from zip(placed, new, strict=False)
    both = min(len(placed), len(new))
    rest = placed[both:] + new[both:]
    yield from zip(rest[::2], rest[1::2], strict=True)


_OPTIONS: Mapping[str, Sequence[str]] = {
    "depth": _RULES,
    "packing": ("fill", "columns"),
    "hysteresis": HYSTERESIS,
    "aging": AGING,
}


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> Scheduler:
    if isinstance(setting.performance, Stages):
        if unread := [name for name in ("hysteresis", "aging") if options[name] != _OPTIONS[name][0]]:
            raise unsupported("policy", f"policy 'jigsaw' does not read {unread[0]} where jobs are known by stages")
        bent = options["depth"] not in ("full", _BY_GOODPUT)  # nothing is known of the progress of stages
        return Interleaving(
            setting, options, setting.performance, "exact", known=True, timing="planned", staircase=bent
        )
    if not isinstance(setting.performance, Profiled):
        raise missing_option(
            "performance", "policy 'jigsaw' needs jobs whose models are known by segments or by stages"
        )
    columns, hysteresis = options["packing"] == "columns", int(options["hysteresis"])
    return JigsawScheduler(setting, options["depth"], columns, hysteresis, Aging(options["aging"]))


_WORDS = "jobs that share GPUs by timetables; backward passes stop early where that pays"
JIGSAW = NamedPolicy("jigsaw", _WORDS, _start, _OPTIONS, shares_gpus=True)
