"""Random valid documents: random problems with names of any characters and numbers of any size."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st

from jigsaw_opt.problem import (
    Block,
    Depth,
    Efficiency,
    FreeDepth,
    FullDepth,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Model,
    Plan,
    StaircaseDepth,
    Transfer,
)
from tests.random_instances import with_guarantees, with_licences, with_power_caps, with_route_policies
from tests.random_task_graphs import random_mixed_instance

LARGEST = 2**53 - 1
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
names = texts.filter(lambda text: text != "" and "/" not in text)
counts = st.integers(0, LARGEST)
positives = st.integers(1, LARGEST)
arguments = st.recursive(
    counts | texts, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)
executors: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"zoo": texts, "arguments": st.dictionaries(texts, arguments), "batch_size": positives}
)
means = st.none() | counts | st.sampled_from(["3/5", "0/1", "007/08"])
limits = st.tuples(positives, means, st.none() | counts, means)


def _depths(workers: int, deepest: int) -> st.SearchStrategy[Depth]:
    levels = st.lists(st.integers(1, deepest), min_size=workers - 1, max_size=workers - 1)
    steps = levels.map(lambda levels: (*sorted(levels), deepest))
    free = limits.map(lambda limits: FreeDepth(*limits))
    return st.just(FullDepth()) | st.builds(StaircaseDepth, st.none() | steps) | free


def _efficiency(model: Model, noise: list[int]) -> Efficiency:
    scales = tuple(noise[k % len(noise)] for k in range(model.depth))
    return Efficiency(scales, (*scales[:-1], 1))


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    seed, horizon = draw(st.integers(0, LARGEST)), draw(st.sampled_from(["finite", "cyclic"]))
    made, random = random_mixed_instance(seed, horizon), Random(seed)
    guaranteed = partial(with_guarantees, about=60)
    for vary in (with_route_policies, with_power_caps, with_licences, guaranteed):
        made = vary(made, random) if draw(st.booleans()) else made
    executor, noise = st.none() | executors, st.lists(counts, min_size=4, max_size=4)
    models = {
        name: replace(model, executor=draw(executor), efficiency=_efficiency(model, draw(noise)))
        for name, model in made.models.items()
    }
    titles = draw(st.lists(names, min_size=len(made.jobs), max_size=len(made.jobs), unique=True))
    jobs = []
    for name, job in zip(titles, made.jobs, strict=True):
        changes: dict[str, Any] = {"name": name, "iterations": draw(positives), "weight": draw(positives)}
        changes |= {"restart_us": draw(st.none() | counts)} if horizon == "finite" else {}
        changes |= {"depth": draw(_depths(job.workers, models[job.model].depth))} if isinstance(job, Job) else {}
        jobs.append(replace(job, **changes))
    return replace(made, name=draw(names), models=models, jobs=tuple(jobs))


iterations = st.builds(
    Iteration,
    st.lists(st.builds(Block, counts, counts, counts), max_size=2).map(tuple),
    st.lists(st.builds(Transfer, counts, counts, counts), max_size=2).map(tuple),
)
gpus = st.lists(st.builds("{}/{}".format, names, counts), max_size=2).map(tuple)
plans = st.builds(
    Plan.of_jobs,
    texts,
    texts,
    st.sampled_from(["optimal", "feasible"]),
    counts,
    counts,
    st.none() | counts,
    st.lists(st.builds(JobPlan, texts, gpus, st.lists(iterations, max_size=2).map(tuple)), max_size=2).map(tuple),
    st.dictionaries(texts, arguments | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()),
)
