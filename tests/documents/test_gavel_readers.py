"""Gavel's traces and throughputs, right and wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.traces.gavel import GavelJobType, read_gavel, read_throughputs
from jigsaw_opt.documents.recognising import likely_form
from jigsaw_opt.errors import InvalidInputError

LINE = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t{steps}\t{gpus}\t{priority}\t-1.000000\t{arrival}\n"


def line(steps: object = 100, gpus: object = 2, priority: object = 1, arrival: object = 0) -> str:
    return LINE.format(steps=steps, gpus=gpus, priority=priority, arrival=arrival)


def test_a_trace() -> None:
    jobs = read_gavel(line(arrival=7.5) + line(steps=3, gpus=4, priority=5)).jobs
    assert [(job.name, job.submit_us) for job in jobs] == [("line-2", 0), ("line-1", 7_500_000)]
    assert (jobs[0].model, jobs[0].gpus, jobs[0].iterations, jobs[0].weight) == ("LM (batch size 5)", 4, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        "A\tpython3 a.py\t-n\t1\t95121\t6.000000\t2\nB\tpython3 b.py\t-n\t1\t3\t0.500000\t1\n",
        "A\tpython3 a.py\t-n\t1\t95121\t2\t1\t-1\t6\nB\tpython3 b.py\t-n\t1\t3\t1\t1\t-1\t0.5\n",
    ],
    ids=["seven columns", "nine columns"],
)
def test_earlier_traces_have_fewer_columns(text: str) -> None:
    jobs = [(job.name, job.submit_us, job.model, job.gpus, job.iterations, job.weight) for job in read_gavel(text).jobs]
    assert jobs == [("line-2", 500_000, "B", 1, 3, 1), ("line-1", 6_000_000, "A", 2, 95_121, 1)]
    assert likely_form(text) == "gavel"


def test_wrong_lines_are_left_out_and_named_where_no_other_is() -> None:
    wrong = line(arrival=-1) + line(gpus="two") + "a\tb\n"
    workload = read_gavel(line() + wrong)
    assert ([job.name for job in workload.jobs], sum(workload.left_out.values())) == (["line-1"], 3)
    with pytest.raises(InvalidInputError) as raised:
        read_gavel(wrong)
    problems = [str(problem) for problem in raised.value.problems]
    assert [problem.split(":")[1] for problem in problems] == ["1", "2", "3"]
    assert "negative" in problems[0]


def test_throughputs() -> None:
    found = read_throughputs('{"v100": {"(\'A\', 2)": {"null": 8.5, "(\'B\', 2)": [4.0, 3]}}}')
    assert found == {"v100": {GavelJobType("A", 2): {None: (8.5,), GavelJobType("B", 2): (4.0, 3.0)}}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"v100": 3}', "$.v100"),
        ('{"v100": {"A": {"null": 1}}}', "$.v100"),
        ('{"v100": {"(\'A\', 2)": {}}}', "(\\\"'A', 2"),
        ('{"v100": {"(\'A\', 2)": {"null": -1}}}', "null"),
        ('{"v100": {"(\'A\', 2)": {"null": 1e-300}}}', "null"),
        ('{"v100": {"(\'A\', 2)": {"null": 1e300}}}', "null"),
        ('{"v100": {"(\'A\', 2)": {"null": 1, "(\'B\', 2)": 3}}}', "'B'"),
    ],
)
def test_wrong_throughputs(text: str, where: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read_throughputs(text)
    assert len(raised.value.problems) == 1
    assert where.strip('(\\"') in str(raised.value)


def test_the_shared_trace_and_throughputs(shared_data: Path) -> None:
    folder = shared_data / "cluster/gavel"
    jobs = read_gavel((folder / "traces/max_min_fairness.trace").read_bytes()).jobs
    throughputs = read_throughputs((folder / "simulation_throughputs.json").read_bytes())
    assert len(jobs) == 96
    assert set(throughputs) == {f"{gpu}{end}" for gpu in ("k80", "p100", "v100") for end in ("", "_unconsolidated")}
    assert all(throughputs["v100"][GavelJobType(job.model, job.gpus)][None][0] > 0 for job in jobs)
