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
    "dangling reference": (lambda d: d["jobs"][1].update(model="nte"), "unknown-name $.jobs[1].model"),
    "negative size": (
        lambda d: d["models"]["net"]["segments"][0].update(parameter_bytes=-1),
        "out-of-range $.models.net.segments[0].parameter_bytes",
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
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"a":1,"a":2}', b"[" * 100_000, b"9" * 5000, b"\x00garbage" * 9**6]
)
def test_what_is_not_a_document_is_refused(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    assert run("solve", file, "--solver", "greedy") == 3
    assert capsys.readouterr().err.startswith("error: ")


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
        "run": [pair_path, tmp_path / "none"],
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


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", 2**70), ("--seed", -1), ("--threads", 0), ("--threads", 2**31)]
)
def test_options_out_of_range_are_usage_errors(option: str, value: int, pair_path: Path) -> None:
    for command in (["solve", pair_path], ["run", pair_path, "none.json"]):
        assert run(*command, option, value) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("bench", "tiny/000", "--threads", 2**31, "-o", "none"), 2),
        (("solve", f"tiny:{'9' * 5000}"), 2),
        (("solve", f"tiny:1:load={'9' * 5000}"), 2),
        (("solve", "tiny/000", "--time-limit", -1), 2),
        (("solve", "tiny/000", "--time-limit", "nan"), 2),
        (("bench", "x" * 300, "-o", "none"), 3),
        (("solve", "x" * 300), 3),
        (("check", "x" * 300, "x" * 300), 3),
        (("validate", "x" * 300), 3),
    ],
    ids=lambda value: " ".join(map(str, value))[:30] if isinstance(value, tuple) else "",
)
def test_what_no_file_or_number_can_be(
    words: tuple[object, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == code
    assert not list(tmp_path.iterdir())


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
    pair_plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", "server/demo", pair_plan_path) == 7
    told = capsys.readouterr().out
    assert all(word in told for word in (str(pair_plan_path), "'pair'", "'server-demo'")) and told.count("\n") == 1
    assert run("check", "server/demo", pair_plan_path, "--json") == 7
    assert len(json.loads(capsys.readouterr().out)["violations"]) > 1
    for command in (["plot", "server/demo", pair_plan_path], ["run", "server/demo", pair_plan_path]):
        ends("7: CheckFailedError", *command, "-o", tmp_path / "x.html")
        assert "'pair'" in capsys.readouterr().err and not (tmp_path / "x.html").exists()


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
