"""Traces of Muri: what is read, and every line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.traces.muri import read_muri
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import StageTimes, TraceJob
from tests.refusals import refuses

HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority"
)


def trace(*lines: str) -> str:
    return "\n".join((HEADER, *lines)) + "\n"


def test_a_job_is_read_with_the_stages_of_its_model_on_its_gpus() -> None:
    workload = read_muri(trace("7,8,6812000,464903,a2c,64,255697000,10000,555,502,14,0.4,0"))
    assert workload.jobs == (TraceJob("7", 6_812_000_000, "a2c-64@8", 8, 464_903, batch_size=64),)
    assert workload.stages == {"a2c-64@8": StageTimes(502_000, 14_000, 400, 555_000)}


def test_every_wrong_line_is_left_out() -> None:
    lines = (
        "0,8,0,100,gpt2,4,0,0,437,0.6,419,49,0",
        "1,8,0,100,gpt2,4,0,0,437,0.6,420,49,0",
        "2,8,-5,100,gpt2,4,0,0,437,0.6,419,49,0",
        "3,0,0,few,bert,4,0,0,0,0.5,167,59,0",
        "0,1,0,100,bert,4,0,0,178,0.5,160,0,0",
        "5,1,0,100,bert",
    )
    workload = read_muri(trace(*lines), "t.csv")
    assert (workload.jobs, list(workload.stages)) == (
        (TraceJob("0", 0, "gpt2-4@8", 8, 100, batch_size=4),),
        ["gpt2-4@8", "bert-4@1"],
    )
    assert workload.left_out == {
        "with a record that is wrong: the stages of model 'gpt2-4@8' are others than in the lines before": 1,
        "with a record that is wrong: submit_time is negative": 1,
        "with a record that is wrong: num_gpu is too small": 1,
        "with the name of a job before": 1,
        "with a record that is wrong: more or fewer cells than there are columns": 1,
    }
    with pytest.raises(InvalidInputError) as raised:
        read_muri(trace(lines[3], lines[5]), "t.csv")
    assert [problem.path for problem in raised.value.problems] == ["t.csv:2", "t.csv:2", "t.csv:2", "t.csv:3"]


def test_stages_take_time() -> None:
    with refuses("empty t.csv:2"):
        read_muri(trace("0,8,0,100,gpt2,4,0,0,437,0,0,0,0"), "t.csv")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InvalidInputError) as raised:
        read_muri(trace().replace("resource_time_2,", ""), "t.csv")
    assert ("t.csv:1", "no column 'resource_time_2'") in {(p.path, p.message) for p in raised.value.problems}


def test_traces_of_muri_are_read_whole(shared_data: Path) -> None:
    sizes = {}
    for name in ("trace1", "trace3", "job_type_1", "cluster_exp_trace"):
        workload = read_muri((shared_data / f"cluster/muri/{name}.csv").read_bytes(), name)
        sizes[name] = len(workload.jobs)
        assert {job.model for job in workload.jobs} == set(workload.stages)
    assert sizes == {"trace1": 1494, "trace3": 992, "job_type_1": 992, "cluster_exp_trace": 400}
