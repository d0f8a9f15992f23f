"""What helps who types: suggestions, one message for one mistake, completion."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.cli.common.parser import parser_of
from jigsaw_opt.cli.common.progress import _line
from jigsaw_opt.solvers.result import Event
from tests.refusals import carries, ends

DATA = Path(__file__).parents[1] / "data"
SIMULATE = ("simulate", "--cluster", "2x4", "-o", "none")
PAIR, PLAN = DATA / "pair.json", DATA / "pair.plan.json"
DAY = "simulate --workload day --policy fifo -o none --cluster"


def run(*arguments: object) -> int:
    return main(list(map(str, arguments)))


@pytest.mark.parametrize(
    ("given", "code", "meant"),
    [
        (("solve", "sever/demo"), 3, "did you mean 'server/demo'?"),
        (("solve", "server/demo", "--solver", "gredy"), 2, "did you mean 'greedy'?"),
        (("solve", "rack:1:laod=90"), 2, "did you mean 'load'?"),
        (("solve", "server/demo", "--time-limt", 5), 2, "no option '--time-limt'; did you mean '--time-limit'?"),
        (("slove", "server/demo"), 2, "did you mean 'solve'?"),
        (("--vrsion",), 2, "did you mean '--version'?"),
        (("instances", "rak"), 2, "did you mean 'rack'?"),
        (("schema", "plann"), 2, "did you mean 'plan'?"),
        (("failures", PAIR, PLAN, "--kinds", "linc"), 2, "did you mean 'link'?"),
        ((*SIMULATE, "--workload", "dya", "--policy", "fifo"), 3, "did you mean 'day'?"),
        ((*SIMULATE, "--workload", "day", "--policy", "fifi"), 2, "did you mean 'fifo'?"),
        ((*SIMULATE, "--workload", "day", "--policy", "fifo", "--performance", "secnds"), 2, "mean 'seconds'?"),
        ((*SIMULATE, "--workload", "day", "--policy", "fifo", "--cluster", "sinof:x"), 2, "did you mean 'sinfo'?"),
        (("explain", PAIR, PLAN, "aa"), 2, "did you mean 'a'?"),
    ],
)
def test_a_misspelt_word_has_a_suggestion(
    given: tuple[object, ...], code: int, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert run(*given) == code
    except SystemExit as ended:  # argparse's own
        assert ended.code == code
    assert meant in capsys.readouterr().err
    assert not Path("none").exists()


def test_what_follows_two_dashes_is_no_option() -> None:
    ends("3: unreadable --time-limt", "solve", "--", "--time-limt")


def test_a_word_that_resembles_none_is_told_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("export", "server/demo", "--to", "x", "-o", "none")
    assert carries(capsys.readouterr().err, "there are", "perfetto", "mps", "lp")


def test_the_progress_line_has_the_limit() -> None:
    event = Event(1.5, 200, 100)
    assert _line(event, 30.0).strip() == "1.50 of 30 s  objective 200  bound 100  gap 50.00 %"
    assert _line(event, None).strip().startswith("1.50 s  objective")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_the_shell_takes_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*COMMANDS, "time-limit", "rack/plain"))
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("completion", "bash") == 0
    script = capsys.readouterr().out
    for words in ("jigsaw sol", "jigsaw solve --time", "jigsaw solve rack/pl"):
        script += f'COMP_WORDS=({words}); COMP_CWORD={words.count(" ")}; _jigsaw; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
    shown = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, check=True).stdout
    assert {"solve", "--time-limit", "rack/plain"} <= set(shown.split())


def test_the_examples_of_the_help_are_right() -> None:
    modules = {name: import_module(f"jigsaw_opt.cli.{path}") for name, (path, _) in COMMANDS.items()}
    examples = {name: module.EXAMPLE for name, module in modules.items() if hasattr(module, "EXAMPLE")}
    assert len(examples) >= 10
    for name, example in examples.items():
        program, *words = shlex.split(example)
        assert (program, parser_of(COMMANDS).parse_args(words).command) == ("jigsaw", name)


def test_a_picture_of_an_unknown_ending_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("plot", PAIR, PLAN, "-o", tmp_path / "x.pdf")
    ends("2: unknown-format -o", *files)
    assert ".html, .htm, .png, .svg, .txt" in capsys.readouterr().err
    assert not (tmp_path / "x.pdf").exists()
    assert run(*files, "--to", "text") == 0


def test_a_dash_is_standard_output_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("plot", PAIR, PLAN, "-o", "-", "--to", "html") == 0
    assert capsys.readouterr().out.startswith("<!")
    assert run("generate", "tiny", "-o", "-") == 0
    assert json.loads(capsys.readouterr().out)["objective"]
    ends("2: unwritable -o", "solve", "tiny/000", "-o", "-")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (
            "solve week",
            3,
            "is a bundled workload, not an instance (it is taken by jigsaw simulate --workload week --cl",
        ),
        (
            f"{DAY} 2x4".replace("day", "server/plain"),
            3,
            "not a workload (it is taken by jigsaw solve server/plain, and --cluster",
        ),
        (
            "solve jobs.csv",
            3,
            "taken by jigsaw simulate --workload jobs.csv --cluster 2x4 --policy fifo -o results, and ",
        ),
        (
            "solve odd.csv",
            3,
            "looks like a workload in CSV, not an instance (it is taken by jigsaw simulate --workload odd.",
        ),
        ("new --job a:vgg16:1:1 --cluster 2x4xa100", 3, "cluster: is SERVERSxGPUS:TYPE, as in 4x8:v100, not '2x4x"),
        (f"{DAY} 2x4xa100", 2, "SERVERSxGPUS:TYPE is wanted, as in 2x4:a100 or 2x4:v100+1x8:a100, not '2x4xa100'"),
        (
            f"{DAY} nope",
            3,
            "nope: cannot be read: No such file or directory (a cluster in words is SERVERSxGPUS:TYPE, as",
        ),
        ("solve tiny/000 --time-limit 5s", 2, "SECONDS is a number without a unit, not '5s'"),
        ("solve tiny/000 --seed x", 2, "N is a whole number, not 'x'"),
        ("solve tiny/000 --threads 0", 2, "--threads lies between 1 and 1000, not 0"),
        ("solve tiny/000 --solver phased --survivable", 2, "error: solver 'phased' takes no option --survivable"),
        (
            "solve pair.json --solver greedy --warm plan.json --fix-before 5",
            2,
            "keeps nothing of a plan; auto does what --fix-",
        ),
        (
            "explain empty",
            3,
            "holds no simulation: it has no jobs.csv (that of `jigsaw simulate` without --sweep does)",
        ),
        ("failures pair.json plan.json --at -5", 2, "must be at least 0; is -5"),
        ("pipeline pair.json --stages 2 --memory 3pounds", 2, "'3pounds'"),
        ("pipeline pair.json --stages 2 --micro-batches 3..2", 2, "'3..2'"),
        ("new --job a:vgg16:1:0s", 3, "--job: a job runs for longer than 0; 'a:vgg16:1:0s' does not"),
        ("new --job a:vgg16:1:1 --profile net=pair.json", 3, "--profile: no job has the model 'net' (they have vgg16)"),
    ],
)
def test_what_was_given_is_told_with_what_is_wanted(
    given: str,
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("name,submit_s,gpus,duration_min\na,0,1,5\n")
    Path("empty").mkdir()
    Path("odd.csv").write_text("foo,bar\n1,2\n")
    Path("pair.json").write_bytes(PAIR.read_bytes())
    Path("plan.json").write_bytes(PLAN.read_bytes())
    try:
        found = main(given.split())
    except SystemExit as end:
        found = int(end.code or 0)
    assert found == code and told in capsys.readouterr().err
