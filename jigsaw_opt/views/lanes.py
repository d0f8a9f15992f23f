"""A plan as lanes: one for each GPU and one for each link, with the intervals that lie on it.

Every picture reads this. The intervals of a cyclic plan are shown in one period: they are moved
to ``[0, T)`` and split where they reach past its end. A phased plan has a lane for each job, with its phases on it;
each of these is a cyclic plan with a picture of its own.
"""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph, compile_task_graph
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.measured.replay import MeasuredPhase
from jigsaw_opt.problem.measured.times import MeasuredJob
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob
from jigsaw_opt.text import counted
from jigsaw_opt.views.memory import MemoryUse, memory_use

if TYPE_CHECKING:
    from jigsaw_opt.solvers.explanation import JobExplanation
    from jigsaw_opt.solvers.explanation.in_words import ReportedBound

_FIRST = ("#4094d8", "#e69f00", "#00a67a", "#cc79a7", "#f0e442", "#e06a1a", "#56c4ef")
"""After Okabe and Ito (2008), https://jfly.uni-koeln.de/color/, the dark ones lighter."""
_GOLDEN = 0.61803398875
_LUMINANCES = (0.30, 0.55, 0.22)
"""Luminances in turn: neighbours differ without their hues, and black text has a contrast of at least 5:1."""
GREY = "#9a9a9a"
"""No job has it unless it is to stand back."""


def job_colour(index: int) -> str:
    """Return the colour of job number `index` as ``#rrggbb``: seven well-known ones, then hues a golden angle apart."""
    if index < len(_FIRST):
        return _FIRST[index]
    hue = (0.58 + index * _GOLDEN) % 1.0
    low, high = 0.0, 1.0
    for _ in range(12):
        lightness = (low + high) / 2
        if luminance(_written(hue, lightness)) < _LUMINANCES[index % 3]:
            low = lightness
        else:
            high = lightness
    return _written(hue, high)


def luminance(colour: str) -> float:
    """Return the relative luminance, from 0 to 1, of a colour ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _written(hue: float, lightness: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, 0.62))


_MOST_LANES = 1_000_000
_Job = JobPlan | TaskGraphJobPlan | MeasuredJob


class MemoryLane(NamedTuple):
    """The memory of a GPU over time, as a row of a picture."""

    name: str
    use: MemoryUse


class Interval(NamedTuple):
    """One block or transfer on a lane, or a phase on that of a job.

    `number` is the worker of a block and the bucket of a transfer; where the job has a task graph, that of its
    operation; of a phase its number among all. `level` is 0 for a transfer and a phase, and 1 for a block of a task
    graph.
    Times are microseconds; `job` and `iteration` count from 0.
    """

    start_us: int
    end_us: int
    job: int
    iteration: int
    number: int
    level: int


@dataclass(slots=True)
class Lane:
    """A GPU, a link or a job of a group of phases, and its intervals by start."""

    name: str
    kind: str
    intervals: list[Interval] = field(default_factory=list)
    group: int = 0

    @property
    def has_phases(self) -> bool:
        """Whether it is that of a job, on which its phases lie."""
        return self.kind.endswith("job")

    @property
    def is_measured(self) -> bool:
        """Whether it shows what was measured."""
        return self.kind.startswith("measured ")

    @property
    def busy_us(self) -> int:
        """Total length of the intervals."""
        return sum(interval.end_us - interval.start_us for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a plan: its lanes.

    `lanes`: GPUs in the cluster's order, then links; of a phased plan its jobs, group by group. `end_us`: right edge:
    the latest end, or the period of a cyclic plan. `facts`: what else there is to say, each with its name. `memory`: by
    GPU, where memory is taken for some time only, what is taken of it and by whom. `foreground`: names of jobs that are
    drawn in grey, so that the others are seen to fill what they leave. `numbers`: what decides the colour of each job,
    where the instance is a part of another one. `stories`: by number of the job, where its time goes; of jobs that are
    not explained nothing. `chosen`: number of the job that is chosen as the page opens. `proven`: what is proven of the
    objective, and why; None where it is not known. `measured`: the phases of a phased plan as they were measured.
    """

    instance: Instance
    plan: Plan
    lanes: tuple[Lane, ...]
    end_us: int
    facts: tuple[tuple[str, str], ...] = ()
    memory: Mapping[str, MemoryUse] = field(default_factory=dict)
    foreground: frozenset[str] = frozenset()
    numbers: tuple[int, ...] | None = None
    stories: Mapping[int, JobExplanation] = field(default_factory=dict)
    chosen: int | None = None
    proven: ReportedBound | None = None
    measured: tuple[MeasuredPhase, ...] = ()

    @property
    def rows(self) -> Iterator[Lane | MemoryLane]:
        """Every row of the picture: the lanes, and the memory of a GPU behind its lane, or at the end without one."""
        left = {gpu: MemoryLane(f"{gpu} memory", use) for gpu, use in self.memory.items()}
        for lane in self.lanes:
            yield lane
            if lane.kind == "gpu" and lane.name in left:
                yield left.pop(lane.name)
        yield from left.values()

    @property
    def colours(self) -> list[str]:
        """Colour of each job."""
        numbers = self.numbers if self.numbers is not None else range(len(self.instance.jobs))
        named = zip(numbers, self.instance.jobs, strict=True)
        return [GREY if job.name in self.foreground else job_colour(number) for number, job in named]

    @property
    def filled(self) -> float | None:
        """Share of the GPUs' time beside the foreground that other jobs take; None without a foreground."""
        if not self.foreground:
            return None
        taken = [0, 0]
        for count, part in self._periods:
            for interval in (each for lane in part.lanes if lane.kind == "gpu" for each in lane.intervals):
                own = part.instance.jobs[interval.job].name in self.foreground
                taken[own] += count * (interval.end_us - interval.start_us)
        holes = self.instance.cluster.gpu_count * self.end_us - taken[True]
        return taken[False] / holes if holes else 0.0

    @property
    def _periods(self) -> Iterator[tuple[int, Picture]]:
        """Pictures that have GPUs, and how often each of them takes place."""
        if self.plan.is_phased:
            yield from ((phase.count, period_picture(self, phase)) for _, _, phase in self.plan.all_phases())
        else:
            yield 1, self

    @property
    def depths(self) -> list[int]:
        """Number of levels of each job; 1 where it has a task graph."""
        return [1 if job.model is None else self.instance.models[job.model].depth for job in self.instance.jobs]

    @property
    def operations(self) -> list[tuple[str, ...]]:
        """Names of the operations of each job that has a task graph, blocks first; of others none."""
        return [shape.operations for shape in self._shapes]

    @property
    def edges(self) -> list[list[tuple[int, int, int]]]:
        """Edges of each task-graph job, by numbers of its operations: before, after and lag; of others none."""
        found = []
        for shape in self._shapes:
            number = {name: k for k, name in enumerate(shape.operations)}
            found.append([(number[edge.before], number[edge.after], edge.lag) for edge in shape.edges])
        return found

    @property
    def _shapes(self) -> list[TaskGraph]:
        none, own = trusted(TaskGraph, slots=(), blocks=()), self.instance.task_graph_of
        return [own.get(number, none) for number in range(len(self.instance.jobs))]


class ClusterLanes:
    """The lanes of a cluster, and which of them a job is on.

    `instance`: whose GPUs and links are shown. `kind`: what stands before the kind of each lane, and behind its name.
    """

    def __init__(self, instance: Instance, kind: str = "") -> None:
        cluster = instance.cluster
        if cluster.gpu_count > _MOST_LANES:
            count = counted(cluster.gpu_count, "GPU")
            raise TooLargeError(f"a picture has a lane for each GPU; {count} are too many, {_MOST_LANES:,} the most")
        before, behind = (f"{kind} ", f" {kind}") if kind else ("", "")
        names = cluster.gpus.names
        self.gpus = {name: Lane(name + behind, f"{before}gpu") for name in names}
        self.links = [Lane(link.name + behind, f"{before}link") for link in cluster.links]
        self._routes, self._policies = Routes(cluster), {job.name: job.route_policy for job in instance.jobs}
        self._server_of = {server.name: index for index, server in enumerate(cluster.servers)}

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """GPUs in the cluster's order, then links, each with its intervals by start."""
        lanes = (*self.gpus.values(), *self.links)
        for lane in lanes:
            lane.intervals.sort()
        return lanes

    def intervals(
        self, index: int, asked: Job | TaskGraphJob, job: _Job, first: int = 0
    ) -> Iterator[tuple[Lane, Interval]]:
        """Return the intervals of a job, each with its lane."""
        if isinstance(asked, TaskGraphJob):
            return self._task_graph_intervals(index, compile_task_graph(asked), job, first)
        return self._data_parallel_intervals(index, job, first)

    def _data_parallel_intervals(self, index: int, job: _Job, first: int) -> Iterator[tuple[Lane, Interval]]:
        routes = self._routes.under(self._policies[job.name])
        channel = routes.channel(Counter(self._server_of[gpu.rsplit("/", 1)[0]] for gpu in job.gpus))
        gpus, links = [self.gpus[gpu] for gpu in job.gpus], [self.links[k] for k in channel.links] if channel else []
        iterations: Iterable[Any] = job.iterations
        for number, iteration in enumerate(iterations, first):
            for worker, (lane, block) in enumerate(zip(gpus, iteration.blocks, strict=True)):
                yield lane, Interval(block.start_us, block.end_us, index, number, worker, block.level)
            for transfer in iteration.transfers:
                for lane in links:
                    yield lane, Interval(transfer.start_us, transfer.end_us, index, number, transfer.bucket, 0)

    def _task_graph_intervals(
        self, index: int, graph: CompiledTaskGraph, job: _Job, first: int
    ) -> Iterator[tuple[Lane, Interval]]:
        lanes = [self._lanes_of(graph, job, operation) for operation in range(graph.size)]
        for number, iteration in enumerate(job.iterations, first):
            for operation, done in enumerate(iteration.operations):
                level = int(operation < graph.blocks)
                for lane in lanes[operation]:
                    yield lane, Interval(done.start_us, done.end_us, index, number, operation, level)

    def _lanes_of(self, graph: CompiledTaskGraph, job: _Job, operation: int) -> list[Lane]:
        """Return GPUs of a block, links of a transfer."""
        gpus = [job.gpus[slot] for slot in graph.takes_part[operation]]
        if operation < graph.blocks:
            return [self.gpus[gpu] for gpu in gpus]
        servers = [self._server_of[gpu.rsplit("/", 1)[0]] for gpu in gpus]
        channel = graph.channel(operation, servers, self._routes)
        return [self.links[link] for link in channel.links] if channel else []


@typed
def picture(instance: Instance, plan: Plan) -> Picture:
    """Return the lanes of a correct plan."""
    if plan.is_phased:
        end = max(phase.end_us for _, _, phase in plan.all_phases())
        return Picture(instance, plan, _phase_lanes(instance, plan), end, memory=memory_use(instance, plan))
    board, period = ClusterLanes(instance), plan.period_us
    for index, (asked, job) in enumerate(zip(instance.jobs, plan.jobs, strict=True)):
        for lane, interval in board.intervals(index, asked, job):
            lane.intervals.extend(_wrapped(interval, period))
    end = period or max(job.end_us for job in plan.jobs)
    return Picture(instance, plan, board.lanes, end, memory=memory_use(instance, plan))


def _phase_lanes(instance: Instance, plan: Plan) -> tuple[Lane, ...]:
    """Return a lane for each job, group by group."""
    lanes: dict[tuple[int, int], Lane] = {}
    for number, (g, _, phase) in enumerate(plan.all_phases()):
        for job in phase.numbers_in(instance):
            lane = lanes.setdefault((g, job), Lane(instance.jobs[job].name, "job", group=g))
            lane.intervals.append(Interval(phase.start_us, phase.end_us, job, 0, number, 0))
    return tuple(lanes[key] for key in sorted(lanes))


def period_picture(drawn: Picture, phase: Phase) -> Picture:
    """Return the picture of one period of a phase, as that of a cyclic plan, on the lanes that it uses."""
    found = picture(*drawn.plan.alone(drawn.instance, phase))
    used = tuple(lane for lane in found.lanes if lane.intervals)
    # A period says when what is held comes and goes, the whole plan who else is in memory then.
    memory = {
        lane.name: found.memory.get(lane.name) or drawn.memory[lane.name].within(phase.start_us, found.end_us)
        for lane in used
        if lane.name in drawn.memory
    }
    return replace(
        found, lanes=used, memory=memory, numbers=phase.numbers_in(drawn.instance), foreground=drawn.foreground
    )


def _wrapped(interval: Interval, period: int | None) -> Iterator[Interval]:
    if period is None or interval.start_us == interval.end_us:
        yield interval
        return
    start = interval.start_us % period
    end = start + interval.end_us - interval.start_us
    yield interval._replace(start_us=start, end_us=min(end, period))
    if end > period:
        yield interval._replace(start_us=0, end_us=end - period)
