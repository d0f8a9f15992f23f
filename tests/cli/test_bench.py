"""`jigsaw bench` as a user calls it."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, load_plan
from jigsaw_opt.instances import best_known, load
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.sweeps.bench.summary import COLUMNS
from jigsaw_opt.sweeps.bench.trials import Design, Entry, measure, trials
from tests.extras import needs_plot, needs_ray
from tests.refusals import ends

# Port 1 is reserved; nobody listens there.
WRONG_ENGINES = [
    ("--address", "127.0.0.1:1"),
    ("--engine", "ray"),
    pytest.param(("--engine", "ray", "--address", "127.0.0.1:1"), marks=needs_ray),
    ("--engine", "ray", "--address", "127.0.0.1:1", "--jobs", 2),
]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def bench(folder: Path, *arguments: object) -> int:
    return run("bench", *arguments, "--threads", 1, "--work-limit", 2, "-o", folder)


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_bench_writes_rows_and_summary(pair_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = (pair_path, "tiny/004", "tiny:4", "server:3:load=60")
    assert bench(tmp_path, *sources, "--solvers", "greedy,ilp", "--jobs", 2, "--json", "-v") == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert (summary["runs"], summary["finished"]) == (8, 8)
    assert [(cell["set"], cell["solver"]) for cell in summary["cells"]][:2] == [("files", "greedy"), ("files", "ilp")]
    with (tmp_path / "rows.csv").open() as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == COLUMNS
    assert [(row["instance"], row["set"]) for row in table[::2]] == [
        (str(pair_path), "files"),
        ("tiny/004", "tiny"),
        ("tiny:4", "tiny"),
        ("server:3:load=60", "server"),
    ]
    assert "[8/8]" in printed.err


@needs_plot
def test_bench_draws_the_profile_of_gaps(pair_path: Path, tmp_path: Path) -> None:
    assert bench(tmp_path, pair_path, "--solvers", "greedy") == 0
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert "greedy" in (tmp_path / "report.html").read_text()


def test_the_same_command_runs_nothing_again_and_another_takes_what_fits(pair_path: Path, tmp_path: Path) -> None:
    assert bench(tmp_path, pair_path, "--solvers", "greedy", "--seeds", "0,1") == 0
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert bench(tmp_path, pair_path, "--solvers", "greedy", "--seeds", "0,1") == 0
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    assert bench(tmp_path, pair_path, "--solvers", "greedy", "--seeds", "1,2") == 0
    assert [row["seed"] for row in rows(tmp_path)] == [0, 1, 2]
    with (tmp_path / "rows.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2"]


def test_instances_are_chosen_by_their_objective(tmp_path: Path) -> None:
    sources = ("tiny/000", "tiny/003", "tiny/004", "--solvers", "greedy")
    assert bench(tmp_path, *sources, "--objectives", "makespan,period") == 0
    assert [row["objective_kind"] for row in rows(tmp_path)] == ["makespan", "period"]
    asked = ("bench", "tiny/000", "-o", tmp_path / "none", "--objectives")
    ends("2: empty --objectives", *asked, "period")
    ends("2: unknown-value --objectives", *asked, "profit")
    assert not (tmp_path / "none").exists()


def test_a_solver_that_refuses_an_instance_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "tiny:4", "--solvers", "ilp,greedy", "-v") == 0
    refused, solved = rows(tmp_path)
    assert "'ilp'" in str(refused["error"]) and solved["error"] is None
    assert str(refused["error"]) in capsys.readouterr().err


def test_every_wrong_argument_is_listed_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    wrong = ("--solvers", "greedy,cpsta", "--seeds", "0,x,-1", "--time-limits", "1,nan,soon", "--gap", "-1")
    assert run("bench", "tiny:x", "tiny:1:lod=3", "tiny:1:load=0", *wrong, "-o", folder) == 2
    told = capsys.readouterr().err
    for part in ("'cpsat'", "'x'", "not -1", "'nan'", "'soon'", "gap is at least 0", "tiny:x", "'lod=3'", "load is at"):
        assert part in told
    assert not folder.exists()


def test_a_file_that_is_no_instance_is_invalid_input(tmp_path: Path) -> None:
    bad, folder = tmp_path / "bad.json", tmp_path / "out"
    bad.write_text('{"jobs": []}')
    of_file = f"wrong-count {bad} $.jobs" + 5 * f"; missing-field {bad} $"
    ends(
        f"3: unknown-name --solvers; {of_file}; unknown-name rock",
        "bench",
        bad,
        "rock",
        "--solvers",
        "none-such",
        "-o",
        folder,
    )
    assert not folder.exists()


def test_jobs_below_one_are_refused(tmp_path: Path) -> None:
    assert bench(tmp_path / "out", "tiny/000", "--jobs", 0) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", WRONG_ENGINES)
def test_options_that_do_not_fit_the_engine_are_refused(options: tuple[object, ...], tmp_path: Path) -> None:
    assert bench(tmp_path / "out", "tiny/000", *options) == 2
    assert not (tmp_path / "out").exists()


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jigsaw_opt.sweeps.engine_ray.find_spec", lambda name: None)
    assert bench(tmp_path / "out", "tiny/000", "--engine", "ray", "--address", "auto") == 6
    assert "pip install 'jigsaw-opt[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_the_rest_is_still_written(
    pair_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jigsaw_opt.views.image.find_spec", lambda name: None)
    assert bench(tmp_path, pair_path, "--solvers", "greedy") == 0
    assert "pip install 'jigsaw-opt[plot]'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "rows.csv", "rows.jsonl", "summary.json"]


def shifted(folder: Path, other: Path, factor: float) -> Path:
    """A folder whose runs have other objectives."""
    other.mkdir()
    changed = [{**row, "objective": round(factor * cast(int, row["objective"]))} for row in rows(folder)]
    (other / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    return other


@pytest.mark.slow
def test_worse_runs_than_older_ones_are_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    names = [f"tiny/0{k:02}" for k in (0, 4, 8, 12, 16, 20, 24, 28)]
    assert bench(old, *names, "--solvers", "greedy") == 0
    plans_alone = ("--measures", "objective")  # others are times, which chance or a busy machine makes worse
    assert bench(new, *names, "--solvers", "greedy", "--against", old, *plans_alone) == 0
    against = json.loads((new / "summary.json").read_text())["against"]
    assert against["pairs"] == 8 and "worse" not in {change["verdict"] for change in against["changes"]}
    better = shifted(old, tmp_path / "better", 0.5)
    assert bench(new, *names, "--solvers", "greedy", "--against", better) == 7
    capsys.readouterr()
    assert run("bench", "-o", new, "--against", better, "--measures", "primal_dual_integral") in (0, 7)
    assert "objective" not in capsys.readouterr().out
    assert run("bench", "-o", new, "--against", better, "--json") == 7
    out = capsys.readouterr().out
    told = json.loads(out[out.rindex('{\n  "against"') :])["against"]
    first = told["changes"][0]
    assert (first["measure"], first["worse"], first["verdict"]) == ("objective", 8, "worse")
    assert '"verdict":"worse"' in (new / "report.html").read_text()
    assert run("bench", "-o", new, "--against", shifted(old, tmp_path / "worse", 2.0), *plans_alone) == 0


def test_two_files_of_rows_are_compared_as_their_folders_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    assert bench(old, "tiny/000", "--solvers", "greedy") == 0
    new = shifted(old, tmp_path / "new", 2.0)
    capsys.readouterr()
    told = []
    for place in (new, new / "rows.jsonl"):
        for older in (old, old / "rows.jsonl"):
            assert run("bench", "-o", place, "--against", older, "--measures", "objective", "--json") == 0
            against = json.loads(capsys.readouterr().out)["against"]
            told.append((against["pairs"], against["changes"][0]["ratio"], against["changes"][0]["worse"]))
            assert (against["least_instances"], against["too_few"]) == (6, 1)
    assert told == [(1, pytest.approx(2.0), 1)] * 4
    assert run("bench", "-o", new, "--against", old, "--measures", "objective") == 0
    told_too = capsys.readouterr().err
    assert "1 of 1 row can be neither" in told_too and "it takes 6 instances or more in every row" in told_too
    assert sorted(path.name for path in new.iterdir()) == ["report.html", "rows.jsonl"]


def test_runs_that_contradict_each_other_or_what_is_proven_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    best = best_known("tiny/000")
    assert best is not None
    row = {"set": "s", "solver": "a", "seed": 0, "time_limit": 1, "error": None}
    other = {**row, "key": "x", "instance": "x", "instance_sha256": "0" * 64}
    tiny = {**row, "key": "t", "instance": "tiny/000", "instance_sha256": best.instance_sha256}

    def told(older: list[dict[str, object]], newer: list[dict[str, object]]) -> list[str]:
        for path, rows in ((old, older), (new, newer)):
            path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        capsys.readouterr()
        code = run("bench", "-o", new, "--against", old, "--measures", "objective")
        found = [line for line in capsys.readouterr().err.splitlines() if "CONTRADICTION" in line]
        assert code == (7 if found else 0)
        return found

    plan, bound = {**other, "objective": 5, "bound": 1}, {**other, "objective": 20, "bound": 10}
    assert told([plan], [plan]) == []
    end = "one of plan and bound is wrong"
    run_of = "x a seed 0 1 s in"
    between = f"bound 10 is above the objective 5 of {run_of}"
    assert told([plan], [bound]) == [f"CONTRADICTION: {run_of} {new}: {between} {old}: {end}"]
    assert told([bound], [plan]) == [f"CONTRADICTION: {run_of} {old}: {between} {new}: {end}"]
    none = {**other, "objective": None, "status": "infeasible"}
    assert len(told([plan], [none])) == 1
    alone = {**other, "objective": 5, "bound": 9}
    assert told([none], [alone])[0] == f"CONTRADICTION: {run_of} {new}: bound 9 is above the objective 5: {end}"
    low, right = {**tiny, "objective": 1, "bound": 0}, {**tiny, "objective": best.objective, "bound": 0}
    stored = f"CONTRADICTION: tiny/000: a, seed 0: 1, stored {best.bound}: {end}"
    assert told([low], [right]) == [stored] == told([right], [low])


def test_the_only_difference_of_runs_that_cannot_be_compared_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    assert bench(old, "tiny/000", "--solvers", "greedy") == 0
    new = ("bench", "tiny/000", "--solvers", "greedy", "-o", tmp_path / "new", "--against", old)
    assert run(*new, "--threads", 2, "--work-limit", 2) == 3
    assert "of a new one; some differ only in threads: 1 there, 2 here\n" in capsys.readouterr().err
    assert run(*new, "--threads", 2, "--work-limit", 3) == 3
    assert "of a new one\n" in capsys.readouterr().err


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert bench(old, "tiny/000", "--solvers", "greedy") == 0
    again, none = ("bench", "tiny/004", "-o", new, "--solvers"), tmp_path / "none"
    ends(f"3: mismatch {old}", *again, "greedy", "--against", old)
    ends(f"3: unknown-name --solvers; unreadable {none}", *again, "gredy", "--against", none)
    ends(f"3: unreadable {new}", "bench", "-o", new, "--against", old)
    ends("2: missing-option instance", "bench", "-o", new)
    ends(
        "2: out-of-range --against; unknown-value --against",
        "bench",
        "-o",
        old,
        "--against",
        old,
        "--level",
        5,
        "--measures",
        "objective,bound",
    )
    assert not new.exists()


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_finished_and_says_how_to_go_on(pair_path: Path, tmp_path: Path) -> None:
    # The last solve proves nothing and has a limit far longer than the test: Ctrl-C comes while it is under way.
    command = ("bench", str(pair_path), "pod/weighted", "--solvers", "greedy,search", "--time-limits", "1000")
    program = [sys.executable, "-m", "jigsaw_opt", *command, "--threads", "1", "-o", str(tmp_path)]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    # Tests that run in the background would hand down that Ctrl-C is ignored.
    with subprocess.Popen(program, text=True, preexec_fn=_hear_ctrl_c, **pipes) as process:
        file, end = tmp_path / "rows.jsonl", time.monotonic() + 60
        while not file.exists() or file.read_bytes().count(b"\n") < 3:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "3 of 4" in errors and str(file) in errors
    assert len(rows(tmp_path)) == 3
    assert (tmp_path / "rows.csv").read_text().count("\n") == 4
    assert json.loads((tmp_path / "summary.json").read_text())["finished"] == 3


@pytest.mark.parametrize(("bound", "told"), [(0, "BETTER THAN BEST KNOWN"), (10**9 - 1, "CONTRADICTION")])
def test_a_run_beyond_a_best_known_value_is_an_exit_code(
    bound: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = best_known("tiny/000")
    assert best is not None
    stored = {"tiny/000": replace(best, objective=10**9, bound=bound)}
    monkeypatch.setattr("jigsaw_opt.sweeps.bench.known.read_best_known", lambda _path: stored)
    assert bench(tmp_path, "tiny/000", "--solvers", "greedy") == 7
    printed = capsys.readouterr()
    assert f"{told}: tiny/000: greedy, seed 0" in printed.err
    beyond = json.loads((tmp_path / "summary.json").read_text())["beyond_known"]
    assert [it["instance"] for it in beyond] == ["tiny/000"]


def test_the_best_plan_beyond_a_best_known_value_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = best_known("tiny/000")
    assert best is not None
    stored = {"tiny/000": replace(best, objective=10**9)}
    monkeypatch.setattr("jigsaw_opt.sweeps.bench.known.read_best_known", lambda _path: stored)
    instance = load("tiny/000")
    tasks = trials([Entry("tiny", "tiny/000", instance)], Design(("greedy", "cpsat"), (0,), (None,), work_limit=2.0))
    made = [{"key": it.key, **it.labels, "error": None, **it.function(*it.arguments)} for it in tasks]
    assert made[1]["objective"] < made[0]["objective"] and all("plan" in row for row in made)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    assert bench(tmp_path, "tiny/000", "--solvers", "greedy,cpsat") == 7
    (written,) = (tmp_path / "better").iterdir()
    plan = load_plan(written)
    assert written.name == "tiny-000.json" and check(instance, plan) == ()
    assert plan.objective == made[1]["objective"]
    assert "plan" not in measure(encode_instance(replace(instance, name="other")), "greedy", Options(threads=1))
    assert f"--plan {written}" in capsys.readouterr().err
