"""Bad input: the documented exit code, every problem listed, no traceback, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main

Mutation = Callable[[dict[str, Any]], object]
INVALID: dict[str, tuple[Mutation, str]] = {
    "unknown key": (lambda d: d["jobs"][0].update(colour=1), "$.jobs[0].colour"),
    "wrong type": (lambda d: d["jobs"][0].update(workers="2"), "$.jobs[0].workers"),
    "duplicate name": (lambda d: d["jobs"][1].update(name="a"), "$.jobs[1].name"),
    "dangling reference": (lambda d: d["jobs"][1].update(model="nte"), "$.jobs[1].model"),
    "negative size": (
        lambda d: d["models"]["net"]["segments"][0].update(parameter_bytes=-1),
        "segments[0].parameter_bytes",
    ),
    "float time": (lambda d: d["jobs"][0].update(release_us=1.5), "$.jobs[0].release_us"),
    "boolean": (lambda d: d["jobs"][0].update(weight=True), "$.jobs[0].weight"),
    "zero workers": (lambda d: d["jobs"][0].update(workers=0), "$.jobs[0].workers"),
    "cyclic with release": (
        lambda d: (d.update(horizon="cyclic", objective="period"), d["jobs"][0].update(release_us=5)),
        "$.jobs[0].release_us",
    ),
    "wrong objective": (lambda d: d.update(objective="period"), "$.objective"),
    "missing key": (lambda d: d.pop("cluster"), "cluster"),
}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return tmp_path / "out.plan.json"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize(("mutate", "path"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_instance_is_refused_with_its_path(
    mutate: Mutation, path: str, pair_path: Path, tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(pair_path.read_text())
    mutate(document)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    assert run("solve", file, "--solver", "greedy", "-o", plan_file) == 3
    printed = capsys.readouterr()
    assert path in printed.err
    assert printed.out == ""
    assert not plan_file.exists()


def test_every_problem_is_listed(pair_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(pair_path.read_text())
    for mutate in (INVALID["unknown key"], INVALID["dangling reference"], INVALID["negative size"]):
        mutate[0](document)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    assert run("validate", file, pair_path, "--json") == 3
    bad, good = json.loads(capsys.readouterr().out)
    assert len(bad["problems"]) == 3
    assert good["valid"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"not json", b"\xff\xfe", b"[]", b'{"a":1,"a":2}', b"[" * 100_000, b"9" * 5000]
)
def test_what_is_not_a_document_is_refused(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    assert run("solve", file, "--solver", "greedy") == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_a_large_garbage_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "garbage.json"
    with file.open("wb") as stream:
        for _ in range(200):
            stream.write(b"\x00garbage" * 131_072)
    assert run("solve", file) == 3
    assert str(file) in capsys.readouterr().err


def test_a_missing_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", tmp_path / "none.json") == 3
    assert "none.json" in capsys.readouterr().err


def test_an_unknown_solver_is_a_usage_error(pair_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", pair_path, "--solver", "greddy") == 2
    assert "did you mean 'greedy'" in capsys.readouterr().err


def test_a_missing_folder_is_told_before_solving(
    pair_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("solve", pair_path, "-o", tmp_path / "no" / "plan.json") == 2
    assert "no folder" in capsys.readouterr().err


def test_options_out_of_range_are_usage_errors(pair_path: Path) -> None:
    assert run("solve", pair_path, "--workers", 0) == 2
    assert run("solve", pair_path, "--time-limit", -1) == 2
    assert run("solve", pair_path, "--time-limit", "nan") == 2
    with pytest.raises(SystemExit) as stop:
        run("solve", pair_path, "--seed", "x")
    assert stop.value.code == 2


def test_the_plan_of_another_instance_fails_the_check(
    pair_path: Path, pair_plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(pair_path.read_text())
    document["name"] = "other"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    assert run("check", other, pair_plan_path) == 7
    assert "4.7" in capsys.readouterr().out
    assert run("plot", other, pair_plan_path, "-o", tmp_path / "x.html") == 7
    assert not (tmp_path / "x.html").exists()


def test_certain_infeasibility_is_explained(
    pair_path: Path, tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(pair_path.read_text())
    document["jobs"][0]["workers"] = 3
    file = tmp_path / "wide.json"
    file.write_text(json.dumps(document))
    assert run("solve", file, "-o", plan_file) == 4
    printed = capsys.readouterr()
    assert "infeasible:" in printed.err and "a" in printed.err
    assert not plan_file.exists()


def test_an_internal_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, pair_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from jigsaw_opt.cli import solvers

    def broken(arguments: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(solvers, "run", broken)
    with pytest.raises(RuntimeError) as caught:
        main(["solvers"])
    sys.excepthook(RuntimeError, caught.value, None)
    assert capsys.readouterr().err.splitlines()[0] == "internal error: RuntimeError: a bug"
