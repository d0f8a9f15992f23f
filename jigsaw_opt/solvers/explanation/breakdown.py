"""Where the time of a job of a plan goes: its critical chain, and the time of each of its workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.explanation.chain import KINDS, Chains, ChainStep, StepKind
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.text import nearest


@dataclass(frozen=True, slots=True)
class NamedStep:
    """A step of a critical chain, with names.

    `kind`: what the job does, or what it waits for. `operation`: the operation that runs, or that waits. `start_us,
    end_us`: from when to when, in microseconds. `on`: the GPU, link or power cap that is waited for; empty for any
    other kind. `by`: the job that has it meanwhile; empty where there is none.
    """

    kind: StepKind
    operation: str
    iteration: int
    start_us: int
    end_us: int
    on: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class WaitTotal:
    """All waits of one kind for one GPU or link and one holder, in microseconds."""

    kind: StepKind
    on: str
    by: str
    us: int


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Breakdown of the time of one worker or slot.

    `time_us`: by kind, in microseconds; they add up to the time explained.
    """

    gpu: str
    time_us: dict[StepKind, int]


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """Breakdown of the time of a job.

    `release_us, end_us`: when it may begin and when it ends, in microseconds. `explained_us`: what is explained: the
    time from 0 to its end on the finite horizon, the period on the cyclic one. `chain`: the critical chain in order of
    time; it fills the time explained.
    """

    job: str
    release_us: int
    end_us: int
    explained_us: int
    chain: tuple[NamedStep, ...]
    workers: tuple[WorkerTime, ...]

    @property
    def time_us(self) -> dict[StepKind, int]:
        """Return, by kind, the time of the chain in microseconds; the times add up to the time explained."""
        return _by_kind((step.kind, step.end_us - step.start_us) for step in self.chain)

    @property
    def waits(self) -> list[WaitTotal]:
        """Return what the chain waits for by GPU, link and holder, the longest wait first."""
        found: dict[tuple[StepKind, str, str], int] = {}
        for step in self.chain:
            if step.on:
                key = (step.kind, step.on, step.by)
                found[key] = found.get(key, 0) + step.end_us - step.start_us
        return sorted((WaitTotal(*key, us) for key, us in found.items()), key=lambda wait: -wait.us)


def explain_jobs(instance: Instance, plan: Plan, job: str | None = None) -> list[JobExplanation]:
    """Return where the time of the jobs of a correct plan goes that is not phased; of one job where it is named."""
    explainer = Explainer(KeptOrder.of(instance, plan))
    names = [each.name for each in instance.jobs] if job is None else [job]
    return [explainer.of(explainer.number(name)) for name in names]


class Explainer:
    """Explains jobs of one plan.

    `order`: the plan. Jobs are numbered as there.
    """

    def __init__(self, order: KeptOrder) -> None:
        self._order, self._chains = order, Chains(order)
        cluster = order.operations.cluster
        gpus = cluster.gpus.names
        self._resources = [*gpus, *(link.name for link in cluster.links)]
        self._others = {
            "power": [cap.name for cap in cluster.capacities],
            "held": [*gpus, *(own.name for own in order.operations.instance.scarce_capacities)],
        }
        self._number = {name: at for at, name in enumerate(gpus)}

    def number(self, name: str) -> int:
        """Return the number of a job by its name; raise `UsageError` where there is none."""
        names = [job.name for job in self._order.jobs]
        require_job(name, names)
        return names.index(name)

    def of(self, job: int) -> JobExplanation:
        """Return where the time of a job goes."""
        order, period = self._order, self._order.period_us
        own = range(order.begins[job], order.begins[job + 1])
        end, last = self._last(job)
        floor = 0 if period is None else end - period
        chain = [self._named(step) for step in self._chains.back(last, end, floor)][::-1]
        workers = [self._worker(own, self._number[name], last, end) for name in order.gpu_names[job]]
        asked = order.jobs[job]
        return JobExplanation(asked.name, asked.release_us, end, end - floor, tuple(chain), tuple(workers))

    def time_since_0(self, job: int) -> dict[StepKind, int]:
        """Return, by kind, what the critical chain of a job has from 0 to the job's end, on either horizon."""
        end, last = self._last(job)
        return _by_kind((step.kind, step.end_us - step.start_us) for step in self._chains.back(last, end, 0))

    def _last(self, job: int) -> tuple[int, int]:
        """Return the end of a job, and the activity that ends last."""
        own, lengths = range(self._order.begins[job], self._order.begins[job + 1]), self._order.flat.duration_us
        return max((self._order.starts[activity] + lengths[activity], activity) for activity in own)

    def _named(self, step: ChainStep) -> NamedStep:
        flat, names = self._order.flat, self._others.get(step.kind, self._resources)
        on = "" if step.on is None else names[step.on]
        by = "" if step.by is None else self._order.jobs[flat.job[step.by]].name
        what = self._order.operation_name(step.activity)
        return NamedStep(step.kind, what, flat.iteration[step.activity], step.start_us, step.end_us, on, by)

    def _worker(self, own: range, gpu: int, last: int, end: int) -> WorkerTime:
        """Return the time of a worker: its blocks and, in each gap between them, the chain that leads out of it."""
        flat, starts = self._order.flat, self._order.starts
        blocks = sorted((a for a in own if gpu in flat.resources[a]), key=lambda a: self._modulo(starts[a]))
        spent: list[tuple[StepKind, int]] = [("compute", flat.duration_us[a]) for a in blocks]
        for step in self._gaps(blocks, last, end):
            kind: StepKind = "partner" if step.kind == "compute" else step.kind
            spent.append((kind, step.end_us - step.start_us))
        return WorkerTime(self._resources[gpu], _by_kind(spent))

    def _gaps(self, blocks: list[int], last: int, end: int) -> Iterator[ChainStep]:
        flat, starts, period = self._order.flat, self._order.starts, self._order.period_us
        at = 0
        if period is not None and blocks:
            before = blocks[-1]
            at = self._modulo(starts[before]) + flat.duration_us[before] - period
        for block in blocks:
            begin = self._modulo(starts[block])
            yield from self._chains.back(block, begin, at, begin - starts[block])
            at = begin + flat.duration_us[block]
        if period is None:
            yield from self._chains.back(last, end, at)
        elif not blocks:
            yield from self._chains.back(last, end, end - period)

    def _modulo(self, moment: int) -> int:
        return moment if self._order.period_us is None else moment % self._order.period_us


def _by_kind(spent: Iterable[tuple[StepKind, int]]) -> dict[StepKind, int]:
    found: dict[StepKind, int] = dict.fromkeys(KINDS, 0)
    for kind, us in spent:
        found[kind] += us
    return found


def require_job(name: str, names: Sequence[str]) -> None:
    """Refuse a job that a plan does not have."""
    if name not in names:
        raise UsageError(f"the plan has no job {name!r}; {nearest(name, names)}", code="unknown-name", path="job")
