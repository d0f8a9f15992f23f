"""Files of other programs: what they look like, what takes them, and faults of their JSON that are mended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jigsaw_opt.cli import main
from jigsaw_opt.documents.readers.kineto.foreign_json import parsed_foreign
from jigsaw_opt.documents.readers.traces import READERS, TraceFormat
from jigsaw_opt.documents.recognising import FORMS, expecting, likely_form
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.rules.schemas import schema
from jigsaw_opt.simulation.inputs.cluster_files import FORMATS
from tests.refusals import refuses

DATA = Path(__file__).parents[1] / "data"
KINDS = ("instance", "plan", "phased-plan", "replay", "phased-replay", "partition", "layers", "proof")
TEXTS = {
    **{kind: json.dumps({"format": f"jigsaw-{kind}/1", "jobs": [1]}) for kind in KINDS},
    "model": '{\n  "segments": [{"name": "all"}]\n}',
    "result": '{"instance": "a", "instance_sha256": "00", "solver": "b", "objective": 3}\n',
    "csv": (DATA.parents[1] / "jigsaw_opt/instances/data/workloads/day.csv").read_text(),
    "gavel": "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t100\t2\t1\t-1.000000\t0\n",
    "kubernetes": (DATA / "jobs.kubernetes.json").read_text(),
    "philly": "timestamp,duration,num_gpus,gpu_time,cluster\n",
    "slurm": (DATA / "jobs.sacct.txt").read_text(),
    "sinfo": (DATA / "cluster.sinfo.txt").read_text(),
    "nvidia-smi": (DATA / "topology.nvidia-smi.txt").read_text(),
    "deeppool": 'conv2d{"in_channels":3,"out_channels":8}[4][3,8,8] 0.5 100 200\n',
    "jsplib": "# a shop\n1 2\n0 3 1 2\n",
    "huggingface": (DATA / "llama.config.json").read_text(),
    "kineto": (DATA / "trace.kineto.json").read_text(),
    "pipedream": "node1 -- Linear() -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=4.0, parameter_size=8.0\n",
}


def table(trace: TraceFormat) -> str:
    """Return the header of a trace, or a line of numbers where it has none."""
    names = [pair.partition("=")[2].partition("|")[0] for pair in trace.columns.split(",")]
    return trace.separator.join("1" * len(trace.forms[0])) if trace.forms else ",".join(names) + "\n"


TABLES = {name: reader for name, reader in READERS.items() if isinstance(reader, TraceFormat) and name in FORMS}
TEXTS |= {name: table(trace) for name, trace in TABLES.items() if name not in TEXTS}


def test_there_is_a_text_of_every_form_and_a_form_of_every_reader() -> None:
    assert TEXTS.keys() == FORMS.keys()
    assert {reader.what for reader in READERS.values()} <= {form.what for form in FORMS.values()}
    assert FORMATS.keys() <= FORMS.keys()


@pytest.mark.parametrize(("form", "text"), TEXTS.items(), ids=TEXTS.keys())
def test_a_text_looks_like_its_own_form(form: str, text: str) -> None:
    assert likely_form(text) == form
    assert likely_form("\ufeff" + text.replace("\n", "\r\n") + "broken \x00" * 9) == form


@given(st.one_of(st.text(), st.binary()))
def test_any_text_looks_like_a_form_or_like_nothing(text: str | bytes) -> None:
    assert likely_form(text) in {None, *FORMS}


@given(st.text(alphabet='abc{}[]:," \n\t'))
def test_texts_without_the_words_of_a_form_look_like_nothing(text: str) -> None:
    assert likely_form(text) is None


def test_what_looks_like_the_wanted_form_keeps_its_problems() -> None:
    with pytest.raises(InvalidInputError, match="line 3"), expecting(TEXTS["muri"], "t", "tiresias", "muri"):
        raise InvalidInputError([Problem("t", "line 3")])
    with pytest.raises(InvalidInputError, match="line 3"), expecting(json.dumps(schema("plan")), "t", "plan"):
        raise InvalidInputError([Problem("t", "line 3")])


SIMULATE = ("simulate", "--policy", "fifo", "-o", "none", "--cluster")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            (*SIMULATE, "2x4", "--workload", f"alibaba:{DATA / 'jobs.sacct.txt'}"),
            "looks like jobs of Slurm (sacct -P), not pods of Alibaba's GPU trace"
            f" (it is taken by jigsaw simulate --workload slurm:{DATA / 'jobs.sacct.txt'}"
            " --cluster 2x4 --policy fifo -o results)",
        ),
        ((*SIMULATE, "2x4", "--workload", DATA / "pair.json"), "looks like an instance, not a workload in CSV"),
        ((*SIMULATE, DATA / "cluster.sinfo.txt", "--workload", "day"), "it is taken by --cluster sinfo:"),
        ((*SIMULATE, f"sinfo:{DATA / 'pair.json'}", "--workload", "day"), f"--cluster {DATA / 'pair.json'})"),
        (("solve", DATA / "llama.config.json"), "it is taken by jigsaw convert huggingface "),
        (
            ("convert", "deeppool", DATA / "trace.kineto.json", "--gpu-type", "a100", "--batch", "4"),
            "looks like a trace of the PyTorch profiler, not a profile of DeepPool",
        ),
        (("solve", DATA / "cases/field/zero_duration.jsp"), "it is taken by jigsaw convert jsplib "),
        (("solve", DATA / "pair.plan.json"), "looks like a plan, not an instance"),
        (
            ("partition", DATA / "pair.json", "--machines", "2", "--bandwidth", "1"),
            "looks like an instance, not a layer profile or a profile of PipeDream or a model of an instance",
        ),
        (("check", DATA / "pair.json", DATA / "pair.json"), "looks like an instance, not a plan or a phased plan"),
    ],
)
def test_a_wrong_reader_says_which_is_right(
    command: tuple[object, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(map(str, command))) == 3
    error = capsys.readouterr().err
    assert error.startswith("error: 1 problem\n")
    assert told in error


def test_validate_says_that_a_result_file_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(2 * TEXTS["result"])
    assert main(["validate", str(rows), "--json"]) == 3
    ((problem,),) = (file["problems"] for file in json.loads(capsys.readouterr().out))
    assert (problem["code"], problem["path"]) == ("unknown-format", str(rows))
    assert f"--against {rows}" in problem["hint"]


def read(text: bytes) -> tuple[Any, list[str]]:
    told: list[str] = []
    return parsed_foreign(text, "t", lambda tree, report: None, told.append), told


@pytest.mark.parametrize(
    ("text", "value", "told"),
    [
        (b'"x\xffy"', "x\ufffdy", "not UTF-8"),
        (b'"x\x01\n\ty"', "x   y", "control character"),
        (b'"C:\\Users\\new"', "C:\ufffdUsers\new", "escape"),
        (b'"x\\u12"', "x\ufffdu12", "escape"),
        (b'"x\\ud800y"', "x\ufffdy", "lone surrogate"),
        (b'"\xff\\ud83d\\ude00\\"q\\""', '\ufffd\U0001f600"q"', "not UTF-8"),
        (b"inf", math.inf, "Expecting value"),
        (b"-inf", -math.inf, "Expecting value"),
        (b"-infinity", -math.inf, "Expecting value"),
        (b"7,757576", 7.757576, "Expecting"),
        (b"-0,5e-05", -0.5e-05, "Expecting"),
    ],
)
def test_what_is_no_json_is_mended_and_told(text: bytes, value: object, told: str) -> None:
    for whole in (b'{"a": %b, "b": [1,5]}', b'{"b": [1,5], "a": %b }'):
        tree, [note] = read(whole % text)
        assert tree == {"a": value, "b": [1, 5]}
        assert note.startswith("t: mended: ") and told in note


def test_a_mark_of_utf_8_is_left_out_and_told() -> None:
    assert read(b'\xef\xbb\xbf{"a": "x"}') == ({"a": "x"}, ["t: mended: starts with a byte order mark"])


@pytest.mark.parametrize("number", ["nan", "-nan"])
def test_what_is_no_number_to_c_is_none_here(number: str) -> None:
    tree, told = read(f'{{"a": {number}}}'.encode())
    assert math.isnan(tree["a"]) and len(told) == 1


def test_what_is_right_stays_as_it_is() -> None:
    tree = {"a": 'say "x", y: \\', "\ufffd": "\U0001f600\n", "b": {"c": [1.5, None]}}
    assert read(json.dumps(tree, ensure_ascii=False).encode()) == (tree, [])


def test_keys_that_stand_twice_are_told() -> None:
    assert read(b'{"a": 1, "a": 2}') == (
        {"a": 2},
        ["t: 1 keys stand more than once in an object: the last of each counts"],
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": ',
        b'{"a": "x',
        b'{"a": "\xff", ]',
        b"[]",
        b"",
        b'{"a" "b"}',
        b'{"a": \x01}',
        b'{"a": 1,2,3}',
        b'{"a": in}',
    ],
)
def test_all_else_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    assert len(caught.value.problems) == 1


def test_where_a_string_begins_that_never_ends() -> None:
    with refuses("not-json t", naming=["line 1", "column 7"]):
        read(b'{"a": "x')
