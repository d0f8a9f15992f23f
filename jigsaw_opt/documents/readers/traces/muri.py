"""Traces of Muri (SIGCOMM 2022): one job a line, with the stages of its iterations.

Columns ``job_id,num_gpu,submit_time,iterations,model_name,batch_size,iteration_time,resource_time_0`` (loading data)
``,resource_time_1`` (the GPU) ``,resource_time_2`` (the network); times are milliseconds, those of the stages with a
fraction. Others (``duration``, ``interval``, ``priority``) follow from these or are for other systems.
"""

from __future__ import annotations

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload

_MS = 1_000
_STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "iteration_time", *_STAGES)


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_muri(data: bytes | str, source: str = "trace.csv", accept: Accept = anything) -> Workload:
    """Read a trace of Muri.

    The model of a job is called after its name, batch size and GPUs, as ``gpt2-4@8``, because its stages depend on
    all of them.
    """
    stages: dict[str, StageTimes] = {}
    return JobTable(data, source, _COLUMNS).workload(source, lambda row: _job(row, stages), accept, stages)


def _job(row: Row, stages: dict[str, StageTimes]) -> TraceJob:
    gpus, batch = row.integer("num_gpu"), row.integer("batch_size")
    model = f"{row.text('model_name')}-{batch}@{gpus}"
    submit_us, iterations = row.microseconds("submit_time", _MS), row.integer("iterations")
    job = TraceJob(row.text("job_id"), submit_us, model, gpus, iterations, batch_size=batch)
    load, compute, network = (row.microseconds(column, _MS) for column in _STAGES)
    times = StageTimes(load, compute, network, row.microseconds("iteration_time", _MS, least=1))
    if row.good and not load + compute + network:
        row.add(f"no stage takes time: {', '.join(_STAGES)} are 0", code="empty")
    if row.good and stages.setdefault(model, times) != times:
        row.add(f"the stages of model {model!r} are others than in the lines before", code="mismatch")
    return job
