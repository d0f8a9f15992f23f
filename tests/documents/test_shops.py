"""Job shops of the literature in and out: what fits, and why the rest is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.documents.job_shops import jsplib_text, read_jsplib
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Edge, Instance, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

DATA = Path(__file__).parents[1] / "data" / "cases"
# The optimum is 11: machine 1 works 2 + 4 + 5 without a pause.
SHOP = "# three jobs\n3 2\n0 3 1 2\n1 4 0 1\n1 5 0 1\n"
# Fisher and Thompson (1963), 6 × 6, whose optimum is 55; and Lawrence (1984), 10 × 5, whose optimum is 666.
FT06 = """\
6 6
2  1  0  3  1  6  3  7  5  3  4  6
1  8  2  5  4 10  5 10  0 10  3  4
2  5  3  4  5  8  0  9  1  1  4  7
1  5  0  5  2  5  3  3  4  8  5  9
2  9  1  3  4  5  5  4  0  3  3  1
1  3  3  3  5  9  0 10  4  4  2  1
"""
LA01 = """\
10 5
1 21 0 53 4 95 3 55 2 34
0 21 3 52 4 16 2 26 1 71
3 39 4 98 1 42 2 31 0 12
1 77 0 55 4 79 2 66 3 77
0 83 3 34 2 64 1 19 4 37
1 54 2 43 4 79 0 92 3 62
3 69 4 77 1 87 2 87 0 93
2 38 0 60 1 41 3 24 4 83
3 17 1 49 4 25 0 44 2 98
4 77 3 79 2 43 1 75 0 96
"""
SECOND_HEADER = [("file:29", "duplicate-name")]
UNFIT_15 = [("file:15", "does-not-fit")]
LOST = [("file", "missing-field"), ("file", "unknown-name")]


def shop_of(instance: Instance) -> TaskGraphJob:
    (job,) = instance.task_graph_jobs
    return job


def optimum(instance: Instance) -> int:
    result = solve(instance, "cpsat", Options(threads=1, work_limit=5))
    assert result.objective is not None and result.objective == result.bound
    return result.objective


def test_a_job_shop_is_a_chain_of_blocks_a_job() -> None:
    instance = read_jsplib(SHOP, "file", "three")
    shape = shop_of(instance).shape
    assert [(block.name, block.slots, block.duration_us["machine"]) for block in shape.blocks][:3] == [
        ("0.0", ("m0",), 3),
        ("0.1", ("m1",), 2),
        ("1.0", ("m1",), 4),
    ]
    assert shape.edges == (Edge("0.0", "0.1"), Edge("1.0", "1.1"), Edge("2.0", "2.1"))
    assert decode_instance(encode_instance(instance)) == instance
    assert optimum(instance) == 11


@pytest.mark.parametrize(("text", "makespan"), [(FT06, 55), (LA01, 666)], ids=["ft06", "la01"])
def test_classic_job_shops_have_their_known_optimum(text: str, makespan: int) -> None:
    assert optimum(read_jsplib(text, "file", "classic")) == makespan


def test_operations_without_a_duration_need_no_machine() -> None:
    told: list[str] = []
    instance = read_jsplib((DATA / "field/zero_duration.jsp").read_bytes(), "file", "zero", told.append)
    assert [block.name for block in shop_of(instance).shape.blocks] == ["0.0", "1.0", "1.1"]
    assert optimum(instance) == 8
    assert told == ["file: left out: 1 operation without a duration, which need no machine"]
    with pytest.raises(InvalidInputError, match="no operation with a duration"):
        read_jsplib("1 1\n0 0\n", "file")


def test_jobs_may_visit_some_of_the_machines_only() -> None:
    told: list[str] = []
    instance = read_jsplib("2 3\n0 3 1 2\n1 4 0 1 2 6\n", "file", "few", told.append)
    assert shop_of(instance).shape.edges == (Edge("0.0", "0.1"), Edge("1.0", "1.1"), Edge("1.1", "1.2"))
    assert told == ["file: jobs with fewer operations than the 3 machines: 1"]
    # Whoever needs an operation for each machine gets one that takes no time, and is first, where it delays nothing.
    text = jsplib_text(instance)
    assert text.splitlines()[1:] == ["2 3", "2 0 0 3 1 2", "1 4 0 1 2 6"]
    assert read_jsplib(text, "file", "few").jobs[0].shape.edges != () and optimum(read_jsplib(text, "file")) == 11


def test_many_operations_without_a_duration_take_no_longer_each() -> None:
    shop = read_jsplib("1 100000\n" + " ".join(f"{k} {int(k == 7)}" for k in range(3000)), "file", "empty")
    assert [block.name for block in shop_of(shop).shape.blocks] == ["0.7"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", [("file", "empty")]),
        ("2\n0 1\n", [("file:1", "malformed")]),
        ("2 2\n0 3 1 2\n", [("file", "wrong-count")]),
        (
            "3 2\n0 3 2 2\n0 x 1 2\n0 3 1\n",
            [("file:3", "malformed"), ("file:2", "out-of-range"), ("file:4", "wrong-count")],
        ),
        ("1 2\n0 -1 1 -4\n", [("file:2", "out-of-range")] * 2),
        ("1 2\n0 1 1 4 0 2\n", [("file:2", "wrong-count")]),
    ],
)
def test_what_is_wrong_or_does_not_fit_is_listed(text: str, told: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_jsplib(text, "file", "name")
    assert [(problem.path, problem.code) for problem in caught.value.problems] == told


@pytest.mark.parametrize("name", ["shop/job-6x4", "shop/flow-8x3"])
def test_a_job_shop_that_is_written_reads_back(name: str) -> None:
    instance = load(name)
    text = jsplib_text(instance)
    again = read_jsplib(text, "file", "again")
    assert jsplib_text(replace(again, name=instance.name)) == text
    assert len(shop_of(again).shape.blocks) == len(shop_of(instance).shape.blocks)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shop/cyclic-5x4", "$.objective"),
        ("shop/shared-4x3", "$.jobs"),
        ("pipeline/plain", "$.jobs[0].shape.transfers"),
        ("tiny/000", "$.jobs"),
    ],
)
def test_what_is_no_shop_is_refused_with_its_reasons(name: str, path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        jsplib_text(load(name))
    assert (path, "does-not-fit") in [(problem.path, problem.code) for problem in caught.value.problems]


def test_a_shop_may_be_packed_by_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed, broken = tmp_path / "s.txt", tmp_path / "s.txt.gz", tmp_path / "b.txt.gz"
    plain.write_text(SHOP)
    packed.write_bytes(gzip.compress(SHOP.encode()))
    broken.write_bytes(packed.read_bytes()[:-9])
    told = []
    for path in (plain, packed):
        assert main(["convert", "jsplib", str(path)]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != ""
    assert main(["convert", "jsplib", str(broken)]) == 3
    assert f"{broken}: cannot be unpacked" in capsys.readouterr().err


def test_shops_go_in_and_out_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, instance, out = tmp_path / "three.txt", tmp_path / "three.json", tmp_path / "out.txt"
    shop.write_text(SHOP)
    assert main(["convert", "jsplib", str(shop), "--to", "instance", "-o", str(instance)]) == 0
    assert json.loads(instance.read_text())["name"] == "three"
    assert main(["export", str(instance), "--to", "jsplib", "-o", str(out)]) == 0
    assert out.read_text() == SHOP.replace("three jobs", "three")
    for options, name in (([], "three"), (["--name", "other"], "other")):
        assert main(["convert", "jsplib", str(out), *options, "-o", str(instance)]) == 0
        assert json.loads(instance.read_text())["name"] == name
    capsys.readouterr()
    assert main(["convert", "jsplib", str(shop), str(shop), "--gpu-type", "v100", "--to", "layers"]) == 2
    told = capsys.readouterr().err
    assert (
        all(f"{each} does not go with jsplib" in told for each in ("--gpu-type", "--to")) and "takes one file" in told
    )
    assert main(["convert", "kineto", str(shop)]) == 2
    assert "give --gpu-type" in capsys.readouterr().err
