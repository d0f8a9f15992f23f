"""Seeded generators of instances that have a plan by construction.

Jobs are drawn one after the other and each gets a hidden place in memory at once, so what comes
out fits: one after the other, the jobs can run where they were placed.

In most families a single long job often decides the objective, and then every solver that schedules that job well is
as good as any other. In the family `crowded` many jobs share everything, none of them long, and the load decides.
``docs/instances.md`` gives every distribution.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.gpus import server
from jigsaw_opt.instances.profiles import estimate_name, profile
from jigsaw_opt.instances.recipes import BALANCED, COVERED, FAMILIES, FREE, FULL, GBIT, SHALLOW, STAIRCASE, Recipe
from jigsaw_opt.instances.topologies import TOPOLOGIES, require_size
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import needed_bytes, staircase
from jigsaw_opt.problem.depth import FreeDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Instance, Objective
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.text import nearest

_OBJECTIVES: tuple[tuple[str, Objective], ...] = (
    ("makespan", "makespan"),
    ("weighted", "weighted_completion"),
    ("cyclic", "period"),
)
_LEAST_GPUS, _SIZES = 8, 8
_BATCHES: Mapping[str, tuple[int, ...]] = {
    "resnet50": (32, 64, 128),
    "vgg16": (16, 32, 64),
    "bert_large": (8, 16, 32),
    "gpt2_small": (2, 4, 8),
    "gpt2_medium": (1, 2, 4),
}
_MODELS = 6
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_USUAL_BANDWIDTH: Mapping[str, int] = {"v100": 100 * GBIT, "a100": 200 * GBIT, "h200": 400 * GBIT}
_LONGEST_JOB = 60


def crowded(seed: int, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a seed: objective and size in turn, everything else drawn.

    `seed`: takes the objective ``seed`` modulo 3 and ``8 * 2**k`` GPUs, with ``k`` the quotient modulo 8. `changes`:
    fields of the recipe to set otherwise. Widths follow the number of GPUs unless they are among them.
    """
    draw = random.Random(f"crowded recipe/{seed}")
    name, objective = _OBJECTIVES[seed % len(_OBJECTIVES)]
    total = _LEAST_GPUS << seed // len(_OBJECTIVES) % _SIZES
    gpus = draw.choice((4, 8))
    types = tuple(draw.sample(tuple(_USUAL_BANDWIDTH), draw.randint(1, 3)))
    usual = max(_USUAL_BANDWIDTH[gpu_type] for gpu_type in types)
    networks = [(network, batch) for network, batches in _BATCHES.items() for batch in batches]
    recipe = Recipe(
        name,
        topology=draw.choice(("star", "tree")),
        servers=total // gpus,
        gpus=gpus,
        gpu_types=types,
        load=draw.randint(200, 600),
        bandwidth=draw.choice((usual // 2, usual, 2 * usual)),
        latency_us=draw.choice((5, 10, 20)),
        networks=tuple(draw.sample(networks, _MODELS)),
        segments=(3, 6),
        iterations=(1, 12),
        depths=(FULL, STAIRCASE, FREE, COVERED, BALANCED, SHALLOW),
        deal_depths=True,
        objective=objective,
        spare_memory=draw.choice((5, 10, 25, 50, 100)),
        longest_job=_LONGEST_JOB,
    )
    recipe = replace(recipe, **changes)
    size = recipe.servers * recipe.gpus
    widths = tuple(width for width in _WIDTHS if width <= min(size, max(2, size // 4)))
    return recipe if "widths" in changes else replace(recipe, widths=widths)


def shortened(instance: Instance, longest: int) -> tuple[Instance, bool]:
    """Return the instance with fewer iterations of its longest jobs, and whether none of them decides any more.

    The job that takes longest alone loses an iteration, again and again, until it takes at most so much of the mean
    work of a GPU, or has only one iteration left.

    `longest`: largest time that the longest job may take alone, in percent of the mean work of a GPU.
    """
    once = compile_instance(replace(instance, jobs=tuple(replace(job, iterations=1) for job in instance.jobs)))
    spans = [
        critical.least_span_us(job, critical.sites(once, job, critical.usable_gpus(once, job))) for job in once.jobs
    ]
    shares = _mean_work_us(once)
    counts = [job.iterations for job in instance.jobs]
    load = sum(count * share for count, share in zip(counts, shares, strict=True))
    heap = [(-count * span, index) for index, (count, span) in enumerate(zip(counts, spans, strict=True))]
    heapq.heapify(heap)
    while -100 * heap[0][0] > longest * load and counts[heap[0][1]] > 1:
        index = heap[0][1]
        counts[index] -= 1
        load -= shares[index]
        heapq.heapreplace(heap, (-counts[index] * spans[index], index))
    jobs = (replace(job, iterations=count) for job, count in zip(instance.jobs, counts, strict=True))
    return replace(instance, jobs=tuple(jobs)), -100 * heap[0][0] <= longest * load


def _mean_work_us(operations: Operations) -> Sequence[Fraction]:
    """Return the time that the least work of each job takes if all GPUs share it and end at the same moment."""
    gpus: Counter[str] = Counter()
    for own in operations.cluster.servers:
        gpus[own.gpu_type] += own.gpus
    rates = [[Fraction(count, _work_us(job, gpu_type)) for gpu_type, count in gpus.items()] for job in operations.jobs]
    return [1 / sum(rate, Fraction(0)) for rate in rates]


def _work_us(job: OperationGraph, gpu_type: str) -> int:
    """Return the least work of all blocks of a job on one type of GPU."""
    return critical.least_work_us(job, job.blocks[0].duration_us[gpu_type])


_DRAWN: Mapping[str, Callable[[int, Mapping[str, Any]], Recipe]] = {"crowded": crowded}
"""Families without fixed recipes: each makes one from a seed and the fields that are set otherwise."""


@dataclass(frozen=True, slots=True)
class HiddenPlace:
    """A place where a drawn job fits: GPU and level of each worker, the level the same in every iteration."""

    gpus: tuple[Gpu, ...]
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """An instance, and for each of its jobs a place that shows that memory suffices."""

    instance: Instance
    places: tuple[HiddenPlace, ...]


def families() -> tuple[str, ...]:
    """Return the names of all families."""
    return (*FAMILIES, *_DRAWN)


def generate(family: str, seed: int, **changes: Any) -> Instance:
    """Draw the instance of a family.

    Parameters
    ----------
    family
        ``tiny``, ``server``, ``rack``, ``pod``, ``cluster`` or ``crowded``.
    seed
        Takes recipe ``seed`` modulo the number of recipes, and seeds everything random; in ``crowded`` the recipe too.
    changes
        Fields of `Recipe` to set otherwise, such as ``servers=4`` or ``load=200``.

    Raises
    ------
    UsageError
        For an unknown family or field, or where the jobs asked for do not fit.
    """
    return draft(family, seed, **changes).instance


def draft(family: str, seed: int, **changes: Any) -> Draft:
    """Draw an instance as `generate` does, with the hidden place of every job."""
    if family not in families():
        raise UsageError(f"no family {family!r}; {nearest(family, families())}", code="unknown-name", path="family")
    unknown = changes.keys() - Recipe.__dataclass_fields__.keys()
    if unknown:
        raise UsageError(f"a recipe has no {', '.join(sorted(unknown))}", code="unknown-option")
    recipe = _recipe(family, seed, changes)
    _require_size(recipe)
    return _drawn(recipe, f"{family}/{seed}", f"{family}-{recipe.name}-{seed}")


def _drawn(recipe: Recipe, seed: str, name: str) -> Draft:
    """Draw an instance of a recipe; anew without the largest width where a job wider than a server is too long."""
    made = _Builder(recipe, random.Random(seed)).build(name)
    if recipe.longest_job is None:
        return made
    instance, short = shortened(made.instance, recipe.longest_job)
    if short or max(recipe.widths) <= recipe.gpus:
        return replace(made, instance=instance)
    widths = tuple(width for width in recipe.widths if width < max(recipe.widths))
    return _drawn(replace(recipe, widths=widths), seed, name)


def _recipe(family: str, seed: int, changes: Mapping[str, Any]) -> Recipe:
    if family in _DRAWN:
        return _DRAWN[family](seed, changes)
    return replace(FAMILIES[family][seed % len(FAMILIES[family])], **changes)


def _require_size(recipe: Recipe) -> None:
    gpus = recipe.servers * recipe.gpus
    workers = gpus * recipe.load // 100
    require_size(gpus, workers)


@dataclass(slots=True)
class _Builder:
    """Draws models and jobs, and keeps what the hidden places take of each GPU's memory."""

    recipe: Recipe
    random: random.Random
    cluster: Cluster = field(init=False)
    models: Mapping[str, Model] = field(init=False)
    state: dict[Gpu, int] = field(init=False)
    activations: dict[Gpu, int] = field(init=False)

    def __post_init__(self) -> None:
        recipe = self.recipe
        servers = [_server(recipe, index) for index in range(recipe.servers)]
        self.cluster = TOPOLOGIES[recipe.topology](servers, recipe.bandwidth, recipe.latency_us)
        self.models = _models(recipe, self.random)
        self.state = {(s, k): 0 for s in range(recipe.servers) for k in range(recipe.gpus)}
        self.activations = dict(self.state)

    def build(self, name: str) -> Draft:
        left = max(1, self.recipe.load * self.cluster.gpu_count // 100)
        jobs: list[Job] = []
        places: list[HiddenPlace] = []
        while left:
            job, place = self._fitting_job(len(jobs), left)
            jobs.append(job)
            places.append(place)
            left -= job.workers
        cyclic = self.recipe.objective == "period"
        used = {job.model for job in jobs}
        instance = Instance(
            name,
            self._measured_cluster(),
            {key: model for key, model in self.models.items() if key in used},
            tuple(jobs),
            "cyclic" if cyclic else "finite",
            self.recipe.objective,
        )
        return Draft(instance, tuple(places))

    def _fitting_job(self, number: int, left: int) -> tuple[Job, HiddenPlace]:
        """Return a job of at most `left` workers, of the first model in random order that still fits."""
        names = list(self.models)
        self.random.shuffle(names)
        width = min(self.random.choice(self.recipe.widths), left)
        for name in names:
            job = self._job(number, name, width)
            place = self._place(job)
            if place is not None:
                return job, place
        raise UsageError(
            f"job {number + 1} of {width} workers has no place left; lower the load or the widths", code="does-not-fit"
        )

    def _job(self, number: int, model: str, width: int) -> Job:
        recipe, draw = self.recipe, self.random
        pass_us = max(self.models[model].block_us(self.models[model].gpu_types[0]))
        return Job(
            f"job{number}",
            model,
            width,
            draw.randint(*recipe.iterations),
            release_us=draw.randrange(2 * pass_us) if recipe.releases and recipe.objective != "period" else 0,
            weight=draw.randint(1, 5) if recipe.objective == "weighted_completion" else 1,
            depth=recipe.depths[number % len(recipe.depths)] if recipe.deal_depths else draw.choice(recipe.depths),
        )

    def _place(self, job: Job) -> HiddenPlace | None:
        """Put each worker on the emptiest GPU that has room for it, or nowhere if one has none."""
        model = self.models[job.model]
        activations, types = model.activation_bytes(), model.gpu_types
        levels = list(_levels(job, model.depth))
        self.random.shuffle(levels)
        free = [gpu for gpu in self.state if self.cluster.servers[gpu[0]].gpu_type in types]
        free.sort(key=lambda gpu: self.state[gpu])
        chosen: list[Gpu] = []
        for level in levels:
            gpu = next((g for g in free if self._fits(g, model.state_bytes, activations[level - 1])), None)
            if gpu is None:
                return None
            free.remove(gpu)
            chosen.append(gpu)
        for gpu, level in zip(chosen, levels, strict=True):
            self.state[gpu] += model.state_bytes
            self.activations[gpu] = max(self.activations[gpu], activations[level - 1])
        return HiddenPlace(tuple(chosen), tuple(levels))

    def _fits(self, gpu: Gpu, state: int, activations: int) -> bool:
        if self.recipe.spare_memory is not None:
            return True  # memory is made to measure afterwards
        need = needed_bytes(((self.state[gpu], self.activations[gpu]), (state, activations)))
        return need <= self.cluster.servers[gpu[0]].gpu_memory

    def _measured_cluster(self) -> Cluster:
        """Return the cluster with the memory that the recipe asks for."""
        servers, spare = self.cluster.servers, self.recipe.spare_memory
        if self.recipe.tight_memory:
            return self._with_memory(range(len(servers)), 0)
        return self.cluster if spare is None else self._with_memory([server.gpu_type for server in servers], spare)

    def _with_memory(self, groups: Sequence[Hashable], spare: int) -> Cluster:
        """Give servers of a group what their fullest GPU needs, and so many percent more."""
        most: dict[Hashable, int] = {}
        for gpu, state in self.state.items():
            group = groups[gpu[0]]
            most[group] = max(most.get(group, 0), needed_bytes([(state, self.activations[gpu])]))
        servers = tuple(
            replace(server, gpu_memory=most[group] * (100 + spare) // 100)
            for server, group in zip(self.cluster.servers, groups, strict=True)
        )
        return replace(self.cluster, servers=servers)


def _server(recipe: Recipe, index: int) -> Server:
    kind = recipe.gpu_types[index % len(recipe.gpu_types)]
    plain = server(f"s{index}", kind, recipe.gpus)
    return plain if recipe.fabric is None else replace(plain, fabric_bandwidth=recipe.fabric)


def _levels(job: Job, depth: int) -> Sequence[int]:
    """Return the levels that the job's rule allows in every iteration: the staircase where it does, else all full."""
    if job.depth in (StaircaseDepth(), FreeDepth(), FreeDepth(mean_depth="1/2")):
        return staircase(depth, job.workers)
    return (depth,) * job.workers


def _models(recipe: Recipe, draw: random.Random) -> dict[str, Model]:
    if recipe.networks:
        return {
            estimate_name(name, batch): profile(name, batch, recipe.types, draw.randint(*recipe.segments))
            for name, batch in recipe.networks
        }
    return {f"net{number}": _small_model(recipe, draw, everywhere=number == 0) for number in range(2)}


def _small_model(recipe: Recipe, draw: random.Random, everywhere: bool) -> Model:
    """Draw a made-up model: some have an empty bucket, some skip a level, some do not run everywhere."""
    count = draw.randint(*recipe.segments)
    types = recipe.types if everywhere or draw.random() < 0.5 else recipe.types[:1]
    empty = draw.randrange(count) if draw.random() < 0.25 else None
    segments = tuple(
        Segment(
            f"part{index}",
            {t: draw.randint(20, 120) for t in types},
            {t: draw.randint(40, 240) for t in types},
            0 if index == empty else draw.randint(1, 20) * 50_000,
            draw.randint(1, 20) * 100_000,
        )
        for index in range(count)
    )
    skipped = count > 2 and draw.random() < 0.3
    return Model(segments, levels=(1, *range(3, count + 1)) if skipped else ())
