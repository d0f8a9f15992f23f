"""`jigsaw bench` as a user calls it."""

from __future__ import annotations

import csv
import json
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
from tests.extras import needs_ray
from tests.refusals import carries, ends

# Port 1 is reserved; nobody listens there.
WRONG_OPTIONS = [
    ("--jobs", 0),
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
    assert summary["runs"] == 8
    assert [(cell["set"], cell["solver"]) for cell in summary["cells"]][:2] == [("files", "greedy"), ("files", "ilp")]
    with (tmp_path / "rows.csv").open() as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == COLUMNS
    named = zip(map(str, sources), ("files", "tiny", "tiny", "server"), strict=True)
    assert [(row["instance"], row["set"]) for row in table[::2]] == list(named)
    refused = next(row for row in rows(tmp_path) if row["instance"] == "tiny:4" and row["solver"] == "ilp")
    assert "'ilp'" in str(refused["error"]) and str(refused["error"]) in printed.err and "[8/8]" in printed.err


def test_the_same_command_runs_nothing_again_and_another_takes_what_fits(pair_path: Path, tmp_path: Path) -> None:
    chosen = (pair_path, "tiny/004", "--objectives", "makespan", "--solvers", "greedy", "--seeds")
    assert bench(tmp_path, *chosen, "0,1") == 0
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert bench(tmp_path, *chosen, "0,1") == 0
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    assert bench(tmp_path, *chosen, "1,2") == 0
    assert [row["seed"] for row in rows(tmp_path)] == [0, 1, 2]
    # With a search for proofs it is another task, which is resumed as well.
    for _ in range(2):
        assert bench(tmp_path, *chosen, "1,2", "--certify", "5") == 0
        assert [(row["seed"], row["certify_limit"]) for row in rows(tmp_path)[3:]] == [(1, 5.0), (2, 5.0)]
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert [cell["certified"] for cell in summary["cells"]] == [2]
    with (tmp_path / "rows.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2"]


def test_every_wrong_argument_is_listed_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, bad = tmp_path / "out", tmp_path / "bad.json"
    wrong = ("--solvers", "greedy,cpsta", "--seeds", "0,x,-1", "--time-limits", "1,nan,soon", "--gap", "-1")
    assert run("bench", "tiny:x", "tiny:1:lod=3", "tiny:1:load=0", *wrong, "-o", folder) == 2
    told = capsys.readouterr().err
    for part in ("'cpsat'", "'x'", "not -1", "'nan'", "'soon'", "gap is at least 0", "tiny:x", "'lod=3'", "load is at"):
        assert part in told
    bad.write_text('{"jobs": []}')
    of_file = f"wrong-count {bad} $.jobs" + 5 * f"; missing-field {bad} $"
    told = f"3: unknown-name --solvers; {of_file}; unknown-name rock"
    ends(told, "bench", bad, "rock", "--solvers", "none-such", "-o", folder)
    ends("2: empty --objectives", "bench", "tiny/000", "-o", folder, "--objectives", "period")
    ends("2: unknown-value --objectives", "bench", "tiny/000", "-o", folder, "--objectives", "profit")
    ends("2: malformed --certify", "bench", "tiny/000", "-o", folder, "--certify", "-1")
    assert not folder.exists()


@pytest.mark.parametrize("options", WRONG_OPTIONS)
def test_options_that_make_no_sense_are_refused(options: tuple[object, ...], tmp_path: Path) -> None:
    assert bench(tmp_path / "out", "tiny/000", *options) == 2
    assert not (tmp_path / "out").exists()


def test_the_folder_has_the_rows_their_tables_and_the_page(pair_path: Path, tmp_path: Path) -> None:
    assert bench(tmp_path, pair_path, "--solvers", "greedy") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "rows.csv", "rows.jsonl", "summary.json"]


def shifted(folder: Path, other: Path, factor: float) -> Path:
    """A folder whose runs have other objectives."""
    other.mkdir()
    changed = [{**row, "objective": round(factor * cast(int, row["objective"]))} for row in rows(folder)]
    (other / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    return other


def test_worse_runs_than_older_ones_are_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    names = [f"tiny/0{k:02}" for k in range(0, 32, 4)]
    assert bench(old, *names, "--solvers", "greedy") == 0
    plans_alone = ("--measures", "objective")  # others are times, which chance or a busy machine makes worse
    assert bench(new, *names, "--solvers", "greedy", "--against", old, *plans_alone) == 0
    against = json.loads((new / "summary.json").read_text())["against"]
    assert against["pairs"] == 8 and "worse" not in {change["verdict"] for change in against["changes"]}
    better = shifted(old, tmp_path / "better", 0.5)
    assert bench(new, *names, "--solvers", "greedy", "--against", better) == 7
    capsys.readouterr()
    assert run("bench", "-o", new, "--against", better, "--json") == 7
    out = capsys.readouterr().out
    told = json.loads(out[out.rindex('{\n  "against"') :])["against"]
    first = told["changes"][0]
    assert (first["measure"], first["worse"], first["verdict"]) == ("objective", 8, "worse")
    assert '"verdict":"worse"' in (new / "report.html").read_text()
    assert run("bench", "-o", new, "--against", shifted(old, tmp_path / "worse", 2.0), *plans_alone) == 0
    one = tmp_path / "one.jsonl"
    one.write_text((old / "rows.jsonl").read_text().splitlines(keepends=True)[0])
    assert run("bench", "-o", new / "rows.jsonl", "--against", one, *plans_alone) == 0
    assert carries(capsys.readouterr().err, "1 of 1 row can be neither", "takes 6 instances or more in every row")


def test_runs_that_contradict_each_other_or_what_is_proven_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    best = best_known("tiny/000")
    assert best is not None
    row = {"set": "s", "solver": "a", "seed": 0, "time_limit": 1, "error": None}
    other = {**row, "key": "x", "instance": "x", "instance_sha256": "0" * 64}
    tiny = {**row, "key": "t", "instance": "tiny/000", "instance_sha256": best.instance_sha256, "bound": 0}
    plan, bound = {**other, "objective": 5, "bound": 1}, {**other, "objective": 20, "bound": 10}
    low, right = {**tiny, "objective": 1}, {**tiny, "objective": best.objective}
    between = "bound 10 is above the objective 5 of x a seed 0 1 s in"
    for older, newer, told in (
        (plan, plan, None),
        (plan, bound, f"x a seed 0 1 s in {new}: {between} {old}"),
        (bound, plan, f"x a seed 0 1 s in {old}: {between} {new}"),
        (low, right, f"tiny/000: a, seed 0: 1, stored {best.bound}"),
    ):
        for path, line in ((old, older), (new, newer)):
            path.write_text(json.dumps(line) + "\n")
        assert run("bench", "-o", new, "--against", old, "--measures", "objective") == (7 if told else 0)
        found = [line for line in capsys.readouterr().err.splitlines() if "CONTRADICTION" in line]
        assert found == ([f"CONTRADICTION: {told}: one of plan and bound is wrong"] if told else [])


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, none = tmp_path / "old", tmp_path / "new", tmp_path / "none"
    assert bench(old, "tiny/000", "--solvers", "greedy") == 0
    ends(f"3: mismatch {old}", "bench", "tiny/004", "-o", new, "--solvers", "greedy", "--against", old)
    wrong = ("tiny/004", "--solvers", "gredy", "--against", none)
    ends(f"3: unknown-name --solvers; unreadable {none}", "bench", "-o", new, *wrong)
    ends(f"3: unreadable {new}", "bench", "-o", new, "--against", old)
    ends("2: missing-option instance", "bench", "-o", new)
    wrong = ("--level", 5, "--measures", "objective,bound")
    ends("2: out-of-range --against; unknown-value --against", "bench", "-o", old, "--against", old, *wrong)
    assert not new.exists()
    again = ("bench", "tiny/000", "--solvers", "greedy", "-o", new, "--against", old, "--threads", 2, "--work-limit", 2)
    ends(f"3: mismatch {old}", *again)
    assert "of a new one; some differ only in threads: 1 there, 2 here\n" in capsys.readouterr().err


def known_as(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """Have another value stored for tiny/000."""
    best = best_known("tiny/000")
    assert best is not None
    stored = {"tiny/000": replace(best, **values)}
    monkeypatch.setattr("jigsaw_opt.sweeps.bench.known.read_best_known", lambda _path: stored)


def test_a_run_below_a_proven_bound_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known_as(monkeypatch, objective=10**9, bound=10**9 - 1)
    assert bench(tmp_path, "tiny/000", "--solvers", "greedy") == 7
    assert "CONTRADICTION: tiny/000: greedy, seed 0" in capsys.readouterr().err
    beyond = json.loads((tmp_path / "summary.json").read_text())["beyond_known"]
    assert [it["instance"] for it in beyond] == ["tiny/000"]


def test_the_best_plan_beyond_a_best_known_value_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known_as(monkeypatch, objective=10**9)
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
    assert carries(capsys.readouterr().err, "BETTER THAN BEST KNOWN: tiny/000: greedy, seed 0", f"--plan {written}")
