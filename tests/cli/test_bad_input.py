"""Bad input: the documented exit code, every problem listed, no traceback, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from tests.refusals import ends

Mutation = Callable[[dict[str, Any]], object]
INVALID: dict[str, tuple[Mutation, str]] = {
    "unknown key": (lambda d: d["jobs"][0].update(colour=1), "unknown-field $.jobs[0].colour"),
    "wrong type": (lambda d: d["jobs"][0].update(workers="2"), "wrong-type $.jobs[0].workers"),
    "duplicate name": (lambda d: d["jobs"][1].update(name="a"), "duplicate-name $.jobs[1].name"),
    "dangling reference": (lambda d: d["jobs"][1].update(model="nte"), "unknown-name $.jobs[1].model"),
    "negative size": (
        lambda d: d["models"]["net"]["segments"][0].update(parameter_bytes=-1),
        "out-of-range $.models.net.segments[0].parameter_bytes",
    ),
    "float time": (lambda d: d["jobs"][0].update(release_us=1.5), "wrong-type $.jobs[0].release_us"),
    "boolean": (lambda d: d["jobs"][0].update(weight=True), "wrong-type $.jobs[0].weight"),
    "zero workers": (lambda d: d["jobs"][0].update(workers=0), "out-of-range $.jobs[0].workers"),
    "cyclic with release": (
        lambda d: (d.update(horizon="cyclic", objective="period"), d["jobs"][0].update(release_us=5)),
        "contradiction $.jobs[0].release_us",
    ),
    "wrong objective": (lambda d: d.update(objective="period"), "contradiction $.objective"),
    "missing key": (lambda d: d.pop("cluster"), "missing-field $"),
}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return tmp_path / "out.plan.json"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize(("mutate", "told"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_instance_is_refused_with_its_path(
    mutate: Mutation, told: str, pair_path: Path, tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(pair_path.read_text())
    mutate(document)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    ends(f"3: {told}", "solve", file, "--solver", "greedy", "-o", plan_file)
    printed = capsys.readouterr()
    assert told.partition(" ")[2] in printed.err
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


def test_an_unknown_solver_is_a_usage_error(pair_path: Path) -> None:
    ends("2: unknown-name method", "solve", pair_path, "--solver", "greddy")


def test_a_file_in_the_place_of_a_folder_is_told_before_solving(
    pair_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no").touch()
    assert run("solve", pair_path, "-o", tmp_path / "no" / "plan.json") == 2
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["solve", "generate", "convert", "plot", "export", "profile", "run"])
def test_an_output_that_cannot_be_written_is_told_before_any_work(
    command: str, pair_path: Path, tmp_path: Path
) -> None:
    inputs = {
        "solve": [pair_path],
        "generate": ["tiny"],
        "convert": ["pipedream", tmp_path / "none", "--gpu-type", "v"],
        "plot": [pair_path, tmp_path / "none"],
        "export": [pair_path, "--to", "mps"],
        "profile": ["mlp"],
        "run": [tmp_path / "none", "--instance", pair_path],
    }
    output = tmp_path / ("x" * 300)
    ends(f"2: unwritable {output}", command, *inputs[command], "-o", output)
    assert list(tmp_path.iterdir()) == []


def test_the_instance_is_not_overwritten(pair_path: Path, pair_plan_path: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_bytes(pair_path.read_bytes())
    link = tmp_path / "link.json"
    link.symlink_to(own)
    for command in (["solve", own], ["export", own, "--to", "lp"], ["plot", own, pair_plan_path]):
        ends(f"2: unwritable {link}", *command, "-o", link)
    trace = tmp_path / "jobs.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,5,m,2,100\n")
    common = ("--cluster", "2x4", "--policy", "fifo", "-o", tmp_path)
    for more in ([], ["--sweep"]):
        trace = trace.rename(tmp_path / ("rows.csv" if more else "jobs.csv"))
        ends(f"2: unwritable {trace}", "simulate", "--workload", trace, *common, *more)
        assert trace.read_text().startswith("name,")
    assert own.read_bytes() == pair_path.read_bytes()


def test_a_device_is_left_as_it_is(pair_path: Path) -> None:
    import os
    import pty

    above, below = pty.openpty()
    device = Path(os.ttyname(below))
    assert run("solve", pair_path, "--solver", "greedy", "-o", device) == 0
    assert b"jigsaw-plan/1" in os.read(above, 1000)
    assert device.is_char_device()
    os.close(above)
    os.close(below)


def test_options_out_of_range_are_usage_errors(pair_path: Path) -> None:
    assert run("solve", pair_path, "--threads", 0) == 2
    assert run("solve", pair_path, "--threads", 2**31) == 2
    assert run("solve", pair_path, "--seed", 2**70) == 2
    for option, value in (("--seed", 2**70), ("--seed", -1), ("--threads", 2**31)):
        assert run("profile", "mlp", option, value) == 2
        assert run("run", "none.json", "--instance", pair_path, option, value) == 2
    assert run("bench", "tiny/000", "--threads", 2**31, "-o", "none") == 2
    assert run("solve", f"tiny:{'9' * 5000}") == 2
    assert run("solve", f"tiny:1:load={'9' * 5000}") == 2
    assert run("solve", pair_path, "--time-limit", -1) == 2
    assert run("solve", pair_path, "--time-limit", "nan") == 2
    with pytest.raises(SystemExit) as stop:
        run("solve", pair_path, "--seed", "x")
    assert stop.value.code == 2


def test_names_too_long_for_the_file_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 300
    assert run("bench", name, "-o", tmp_path / "out") == 3
    assert run("solve", name) == 3
    assert run("check", name, name) == 3
    assert run("validate", name) == 3
    assert "internal" not in capsys.readouterr().err


def test_without_pulp_an_export_says_what_to_install(
    pair_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jigsaw_opt.solvers.ilp.solver.find_spec", lambda name: None)
    assert run("export", pair_path, "--to", "mps", "-o", tmp_path / "x.mps") == 6
    assert "pip install 'pulp" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(28, "No space left on device", "rows.csv"), 1, "rows.csv: No space left on device"),
        (PermissionError(13, "Permission denied"), 1, "denied"),
        (FileNotFoundError(2, "No such file or directory"), 1, "No such file or directory"),
        (MemoryError(), 1, "out of memory"),
        (RecursionError("maximum recursion depth exceeded"), 1, "too deep for Python: maximum recursion"),
        (ModuleNotFoundError("No module named 'pulp'", name="pulp.apis"), 6, "run: pip install 'pulp'"),
        (BrokenPipeError(), 1, ""),
        (KeyboardInterrupt(), 130, "interrupted: nothing was kept"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_the_system_refuses_is_one_line(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jigsaw_opt.cli.inputs import solvers

    def refused(arguments: object) -> int:
        raise error

    monkeypatch.setattr(solvers, "run", refused)
    assert main(["solvers"]) == code
    told = capsys.readouterr().err
    assert line in told and told.count("\n") == bool(line)


def test_the_plan_of_another_instance_fails_the_check(
    pair_path: Path, pair_plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(pair_path.read_text())
    document["name"] = "other"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    assert run("check", other, pair_plan_path) == 7
    told = capsys.readouterr().out
    assert all(word in told for word in (str(pair_plan_path), "'pair'", "'other'")) and told.count("\n") == 1
    ends("7: CheckFailedError", "plot", other, pair_plan_path, "-o", tmp_path / "x.html")
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

    from jigsaw_opt.cli.inputs import solvers

    def broken(arguments: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(solvers, "run", broken)
    with pytest.raises(RuntimeError) as caught:
        main(["solvers"])
    sys.excepthook(RuntimeError, caught.value, None)
    assert capsys.readouterr().err.splitlines()[0] == "internal error: RuntimeError: a bug"
