"""Models for traces that tell only how long jobs ran."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import DURATION_UNITS_US, TraceJob, Workload
from jigsaw_opt.scheduling.performance import Performance

__all__ = ["with_models"]

_SECOND_US = 1_000_000


def with_models(workload: Workload, performance: Performance, models: Sequence[str], seed: int) -> Workload:
    """Return the workload with a model drawn for every job, each as likely as the others.

    A job gets as many iterations as last, alone at full depth on the GPUs that it asks for, as long as the trace says
    (its iterations are seconds, or what its model says). It keeps its name, submission and GPUs, so the mix by GPUs is
    that of the trace.

    `workload`: jobs with a second an iteration.
    """
    if not models:
        raise UsageError("there are no models to draw from", code="empty", path="models")
    draw = random.Random(seed)
    drawn = [_with_model(job, performance, models, draw) for job in workload.jobs]
    wrong = [one for one in drawn if isinstance(one, str)]
    if wrong:
        raise UsageError(*wrong, code="out-of-range")
    return replace(workload, jobs=tuple(one for one in drawn if isinstance(one, TraceJob)))


def _with_model(job: TraceJob, performance: Performance, models: Sequence[str], draw: random.Random) -> TraceJob | str:
    """Return the job with a model, or why it can have none."""
    if job.iterations is None:
        return f"job {job.name!r} has no duration"
    order = draw.sample(models, len(models))
    for model in order:
        one = replace(job, model=model, iterations=1)
        if performance.unknown(one) is None:
            count = round(job.iterations * DURATION_UNITS_US.get(job.model, _SECOND_US) / performance.alone_us(one))
            return replace(one, iterations=max(1, count))
    return f"job {job.name!r} can run with none of the models: {performance.unknown(replace(job, model=order[0]))}"
