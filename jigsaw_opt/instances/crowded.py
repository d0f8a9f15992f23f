"""The family `crowded`: many jobs that share everything, none of them long.

In the other families a single long job often decides the objective, and then every solver that schedules that job
well is as good as any other. Here the load decides. ``docs/instances.md`` gives every distribution.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from jigsaw_opt.instances.recipes import BALANCED, COVERED, FREE, FULL, GBIT, SHALLOW, STAIRCASE, Recipe
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.instance import Instance, Objective

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
    for server in operations.cluster.servers:
        gpus[server.gpu_type] += server.gpus
    rates = [[Fraction(count, _work_us(job, gpu_type)) for gpu_type, count in gpus.items()] for job in operations.jobs]
    return [1 / sum(rate, Fraction(0)) for rate in rates]


def _work_us(job: OperationGraph, gpu_type: str) -> int:
    """Return the least work of all blocks of a job on one type of GPU."""
    return critical.least_work_us(job, job.blocks[0].duration_us[gpu_type])
