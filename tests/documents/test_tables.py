"""Tables of others, of papers and of spreadsheets: what is read, and what is odd in one is told."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from jigsaw_opt.documents.csv_text import csv_text, restored
from jigsaw_opt.documents.readers.gavel import GavelJobType, read_throughputs
from jigsaw_opt.documents.readers.profiles.burst_costs import LayerOption, read_burst_costs
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.documents.readers.workload_csv import decode_workload
from jigsaw_opt.documents.recognising import likely_form
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from tests.documents.test_traces import encode_workload, problems
from tests.documents.test_wrong_documents import changed
from tests.refusals import carries, refuses

FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "''@",
    "=",
    "-",
    "--5",
    "+a",
)
OTHERS = ("a", "'a", "'", "a=1", "5-3", "-5", "+5.25", "-1e-3", "a,b", 'a"b', "")


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_begins_as_a_formula_is_quoted(text: str) -> None:
    ((head,), (cell,)) = cells(csv_text([text], [[text]]))
    assert head == cell == "'" + text
    assert restored(cell) == text


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_and_numbers_stay(text: str) -> None:
    assert cells(csv_text(["a", "b"], [[text, -5]])) == [["a", "b"], [text, "-5"]]
    assert restored(text) == text


def test_no_cell_begins_a_line() -> None:
    """A carriage return without quotes around it would."""
    assert csv_text(["a"], [["x\r=1"], [None]]) == 'a\n"x\r=1"\n""\n'


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_row_numbers_in_a_column_without_a_name_are_left_aside(index: str) -> None:
    workload = read_trace("csv", f"{index},name,submit_s,gpus,duration_s\n0,a,0,2,15\n", "t")
    assert [(job.name, job.gpus) for job in workload.jobs] == [("a", 2)]
    assert workload.remarks == {"column without a name left aside": 1}


@pytest.mark.parametrize("name", [text for text in (*FORMULAS, *OTHERS) if text and text == text.strip()])
def test_a_workload_reads_back_the_same(name: str) -> None:
    jobs = (TraceJob(name, 0, name, 1), TraceJob("a\rb", 5, "m", 2, 3))
    assert decode_workload(encode_workload(Workload("w", jobs))).jobs == jobs


SACCT = "JobID|Submit|Start|End|Elapsed|AllocTRES\n"
MOMENTS = "2026-01-31T08:00:00|2026-01-31T08:00:00|2026-01-31T09:00:00"


def test_an_elapsed_time_that_is_none_is_told() -> None:
    found = read_trace("slurm", f"{SACCT}1|{MOMENTS}|bad|gres/gpu=1\n2|{MOMENTS}||gres/gpu=1\n", "t")
    assert len({one.iterations for one in found.jobs}) == 1
    assert found.remarks == {"jobs whose Elapsed is no time, which last from Start to End": 1}


def test_lines_of_empty_cells_are_no_jobs() -> None:
    found = read_trace("csv", "name;submit_h;gpus;duration_h\na;0;1;2\n;;;\n;;\n", "t")
    assert len(found.jobs) == 1 and not found.left_out
    assert found.remarks == {"lines of empty cells passed over": 2}


def test_empty_cells_at_the_end_of_a_line_are_cells_between_tabs_too() -> None:
    found = read_trace("csv", "name\tsubmit_h\tgpus\tduration_h\tweight\na\t0\t1\t2\t\n", "t")
    assert [job.name for job in found.jobs] == ["a"] and not found.left_out


def test_a_column_without_a_name_is_not_offered() -> None:
    assert problems("csv", "gpus\t\n1\t2\n")[0].endswith("where X is one of gpus)")


def test_sacct_without_our_columns_is_told_how_to_print_them() -> None:
    (problem,) = problems("slurm", "JobID|JobName|Start|End\n1|a|b|c\n")
    assert problem.startswith(
        "t:1: no column 'Submit', 'AllocTRES' (print it with TZ=UTC sacct -X -P -o JobID,State,Submit"
    )
    (problem,) = problems("slurm", "JobID;Submit\n1;b\n")
    assert problem.startswith("t:1: no bars between columns, but ';' (print it with TZ=UTC sacct -X -P -o ")


def test_dates_under_a_column_of_numbers_lead_to_the_column_of_dates() -> None:
    (problem,) = problems("csv", "name,submit_s,gpus,duration_s\na,2026-01-31 08:30,1,5\n")
    assert carries(problem, "t:2: submit_s", "'2026-01-31 08:30'", "--columns submit=X")
    found = problems("csv", "name,submit,gpus,duration_s\na,31.01.2026 08:30,1,5\n")
    assert carries(found[0], "t:2: submit ", "2026-01-31 08:30", "'31.01.2026 08:30'")
    found = problems("csv", "name,submit_s,gpus,model,iterations,duration\na,0,1,a,1,5\n")
    assert any(carries(one, "'duration'", "duration") for one in found)


def test_another_encoding_is_told_what_to_save() -> None:
    (problem,) = problems("csv", "name,submit_s,gpus,duration_s\n\u00fcber,0,1,5\n".encode("cp1252"))
    assert "not UTF-8" in problem and problem.endswith("(save it as UTF-8; spreadsheets call that CSV UTF-8)")


def test_yaml_is_told_to_be_printed_as_json() -> None:
    for text in ("apiVersion: v1\nitems: []\n", "---\nkind: List\n"):
        (problem,) = problems("kubernetes", text)
        assert carries(problem, "print", "kubectl")
    assert "YAML" not in problems("kubernetes", "hello")[0]


GAVEL = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t{steps}\t{gpus}\t{priority}\t-1.000000\t{arrival}\n"


def gavel_line(steps: object = 100, gpus: object = 2, priority: object = 1, arrival: object = 0) -> str:
    return GAVEL.format(steps=steps, gpus=gpus, priority=priority, arrival=arrival)


def test_a_trace() -> None:
    jobs = read_trace("gavel", gavel_line(arrival=7.5) + gavel_line(steps=3, gpus=4, priority=5), "t").jobs
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
    jobs = [
        (job.name, job.submit_us, job.model, job.gpus, job.iterations, job.weight)
        for job in read_trace("gavel", text, "t").jobs
    ]
    assert jobs == [("line-2", 500_000, "B", 1, 3, 1), ("line-1", 6_000_000, "A", 2, 95_121, 1)]
    assert likely_form(text) == "gavel"


def test_wrong_lines_are_left_out_and_named_where_no_other_is() -> None:
    wrong = gavel_line(arrival=-1) + gavel_line(gpus="two") + "a\tb\n"
    workload = read_trace("gavel", gavel_line() + wrong, "t")
    assert ([job.name for job in workload.jobs], sum(workload.left_out.values())) == (["line-1"], 3)
    with pytest.raises(InvalidInputError) as raised:
        read_trace("gavel", wrong, "t")
    problems_told = [str(problem) for problem in raised.value.problems]
    assert [problem.split(":")[1] for problem in problems_told] == ["1", "2", "3"]
    assert "negative" in problems_told[0]


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


MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority"
)


def muri_trace(*lines: str) -> str:
    return "\n".join((MURI, *lines)) + "\n"


def test_a_job_is_read_with_the_stages_of_its_model_on_its_gpus() -> None:
    workload = read_trace("muri", muri_trace("7,8,6812000,464903,a2c,64,255697000,10000,555,502,14,0.4,0"), "t.csv")
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
    workload = read_trace("muri", muri_trace(*lines), "t.csv")
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
        read_trace("muri", muri_trace(lines[3], lines[5]), "t.csv")
    assert [problem.path for problem in raised.value.problems] == ["t.csv:2", "t.csv:2", "t.csv:2", "t.csv:3"]


def test_stages_take_time() -> None:
    with refuses("empty t.csv:2"):
        read_trace("muri", muri_trace("0,8,0,100,gpt2,4,0,0,437,0,0,0,0"), "t.csv")


def config(gpus: int) -> dict[str, Any]:
    return {"gpus": gpus, "gpu_us": 9 / gpus, "fwd_us": 3 / gpus, "bwd_us": 6 / gpus, "sync_us": gpus - 1}


def costs() -> dict[str, Any]:
    """Two layers, the first on 1 or 2 GPUs, the second on 1, 2 or 4."""
    return {
        "gpus": 4,
        "layers": [
            {"id": 0, "name": "conv", "single_gpu_us": 9, "configs": [config(1), config(2)]},
            {
                "id": 1,
                "name": "linear",
                "single_gpu_us": 5.5,
                "configs": [config(1), config(2), config(4)],
                "xfer_us": [[0, 1, 2], [3, 4, 5]],
            },
        ],
    }


def test_costs_are_read_and_limited_to_fewer_gpus() -> None:
    read = read_burst_costs(json.dumps(costs()))
    assert read.single_gpu_us == 14.5
    assert read.layers[0].options == (LayerOption(1, 9, 3, 6, 0), LayerOption(2, 4.5, 1.5, 3, 1))
    limited = read.limited(2)
    assert limited.gpus == 2
    assert [[option.gpus for option in layer.options] for layer in limited.layers] == [[1, 2], [1, 2]]
    assert limited.layers[1].transfer_us == ((0, 1), (3, 4))
    assert read.limited(1).layers[1].transfer_us == ((0,),)
    assert read.limited(8) == read


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("layers", 0, "name"), 3, ["wrong-type $.layers[0].name"]),
        (("layers", 1, "id"), 0, ["wrong-order $.layers[1].id"]),
        (("gpus",), 2, ["out-of-range $.layers[1].configs[2].gpus"]),
        (("layers", 0, "configs", 1, "gpus"), 1, ["duplicate-name $.layers[0].configs[1].gpus"]),
        (("layers", 0, "xfer_us"), [[1, 2]], ["wrong-count $.layers[0].xfer_us"]),
        (("layers", 1, "xfer_us", 1), [3], ["wrong-count $.layers[1].xfer_us[1]"]),
    ],
)
def test_costs_that_contradict_each_other_are_refused(path: tuple[str | int, ...], to: Any, found: list[str]) -> None:
    with refuses(*found):
        read_burst_costs(json.dumps(changed(path, to, costs())))
