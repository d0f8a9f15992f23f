"""Whatever an instance, a trace or a file is called, messages and views are plain lines of visible characters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import _report_internal_error, main
from jigsaw_opt.cli.common.output import print_error, print_table
from jigsaw_opt.documents import save_instance
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError
from jigsaw_opt.problem import Instance
from tests.modules import sources
from tests.refusals import ends

EVIL = "\x1b[2Jx\r\n\x9b\u202e\u200b\u2028:smile:[red]"
SEEN = r"\x1b[2Jx\r\n\x9b\u202e\u200b\u2028:smile:[red]"


def test_messages_go_through_one_function() -> None:
    """`__init__` says what is no foreign text or makes it printable."""
    saying = {path for path, text in sources().items() if path.startswith("cli/") and "file=sys.stderr" in text}
    assert saying == {"cli/__init__.py", "cli/common/output.py"}


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n"))
    return out + err


@pytest.fixture
def evil(pair: Instance, tmp_path: Path) -> Path:
    server = replace(pair.cluster.servers[0], name="s" + EVIL)
    jobs = tuple(replace(job, name=job.name + EVIL) for job in pair.jobs)
    named = replace(pair, name=EVIL, cluster=replace(pair.cluster, servers=(server,)), jobs=jobs)
    path = tmp_path / f"a{EVIL}\udcff.json"
    save_instance(named, path)
    return path


def test_solving_and_looking(evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main(["solve", str(evil), "--solver", "greedy", "-o", str(plan), "--timeline"]) == 0
    shown = printed(capsys)
    assert f"s{SEEN}/0 |" in shown and f"A = a{SEEN}, B = b{SEEN}" in shown
    assert main(["validate", str(evil), str(plan)]) == 0
    assert f"a{SEEN}\\udcff.json: valid" in printed(capsys)
    assert main(["validate", "--json", str(evil)]) == 0
    assert json.loads(printed(capsys))[0]["file"] == str(evil)
    assert main(["plot", str(evil), str(plan)]) == 0
    assert f"s{SEEN}/0 |" in printed(capsys)


def test_what_is_wrong(evil: Path, pair_plan_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(evil), str(pair_plan_path)]) == 7
    assert SEEN in printed(capsys)
    assert main(["plot", str(evil), str(pair_plan_path)]) == 7
    assert SEEN in printed(capsys)
    evil.write_text("{}")
    assert main(["solve", str(evil)]) == 3
    ends(f"3: unreadable no{EVIL}", "solve", f"no{EVIL}")
    assert f"  no{SEEN}: " in printed(capsys)
    ends("2: unknown-name family", "generate", f"no{EVIL}", "--seed", 0)
    ends(f"2: unwritable {evil}/plan.json", "solve", "x", "-o", f"{evil}/plan.json")
    assert printed(capsys).count(SEEN) >= 2
    for wrong in (["solve", "x", f"--no{EVIL}"], [EVIL], ["solve", "x", "--seed", EVIL]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert r"\x1b[2Jx\r\n\x9b\u202e" in printed(capsys)


def test_a_benchmark(evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / EVIL
    command = ["bench", str(evil), "--solvers", "greedy", "--time-limits", "1", "-o", str(folder), "-v"]
    assert main(command) == 0
    assert f"a{SEEN}?.json greedy" in printed(capsys)
    assert main(command) == 0
    assert f"{SEEN}/rows.jsonl" in printed(capsys)
    print_table(("name", "n"), [(EVIL, 1), ("=1", -5)])
    assert SEEN in printed(capsys)


def test_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / f"t{EVIL}.csv"
    trace.write_text('name,submit_s,model,gpus,iterations\n=1+1,0,@m,1,60\n"\x1b{{data}}",0,m,1,60\n')
    simulate = ["simulate", "--workload", str(trace), "--cluster", "1x2", "--policy"]
    assert main([*simulate, "fifo", "-o", str(tmp_path / EVIL)]) == 0
    assert f"wrote {tmp_path}/{SEEN}/jobs.csv" in printed(capsys)
    assert "\n'=1+1,'@m,1," in (tmp_path / EVIL / "jobs.csv").read_text()
    ends("2: unknown-name policy", *simulate, EVIL, "-o", tmp_path / "out")
    assert printed(capsys)


def test_lists_of_errors_are_cut_and_end_with_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(InvalidInputError([Problem("$", f"{k}\n") for k in range(60)]))
    lines = printed(capsys).splitlines()
    assert "60" in lines[0] and lines[1] == r"  $: 0\n" and lines[50] == r"  $: 49\n"
    assert " 10 " in lines[51] and "jigsaw validate --json" in lines[51] and lines[52:] == [r"  $: 59\n"]
    _report_internal_error(ValueError, ValueError(EVIL), None)
    assert printed(capsys).splitlines()[0].endswith(f": ValueError: {SEEN}")
    print_error(UsageError(*(f"{k}\r" for k in range(60))))
    lines = printed(capsys).splitlines()
    assert lines[:2] == [r"error: 0\r", r"  1\r"] and " 9 " in lines[-2] and lines[-1] == r"  59\r"
