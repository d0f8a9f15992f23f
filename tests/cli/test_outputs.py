"""Every command that writes makes the folders above its output, and no results are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.simulation.results.folder import ResultFolder
from tests.refusals import ends

DATA = Path(__file__).parents[1] / "data"
PAIR, PLAN = str(DATA / "pair.json"), str(DATA / "pair.plan.json")
JOBS = "name,submit_s,model,gpus,iterations\na,5,m,2,100\n"
SIMULATION = ("--workload", "jobs.csv", "--cluster", "2x4", "--policy", "fifo")


CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "solve": ((PAIR, "--solver", "greedy"), ""),
    "new": (("--cluster", "1x2:v100", "--job", "a:resnet50:1:2"), ""),
    "generate": (("tiny", "--seed", "0"), ""),
    "plot": ((PAIR, PLAN), ""),
    "export": ((PAIR, PLAN, "--to", "perfetto"), ""),
    "bench": (("tiny/000", "--solvers", "greedy", "--time-limits", "1", "--seeds", "0"), "rows.jsonl"),
    "simulate": (SIMULATION, "summary.json"),
}
"""By command its arguments, and what it writes into the folder of ``-o``, or nothing where that is a file."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


@pytest.mark.parametrize("command", CASES)
def test_folders_above_an_output_are_made(command: str, here: Path) -> None:
    arguments, inside = CASES[command]
    name = "out/deep/x.html" if command == "plot" else "out/deep/x"
    assert main([command, *arguments, "-o", name]) == 0
    assert (here / name / inside).is_file()


def test_results_of_another_run_are_not_lost(here: Path) -> None:
    run = ["simulate", *SIMULATION, "-o", "x"]
    assert main(run) == 0
    before = (here / "x" / "jobs.csv").read_text()
    ends("2: mismatch x", *run[:-3], "las", "-o", "x")
    assert (here / "x" / "jobs.csv").read_text() == before
    ends("2: mismatch x", *run, "--sweep")
    assert main([*run, "--force"]) == 0
    (here / "cut").mkdir()
    (here / "cut" / "snapshot").write_text("{}")  # of an interrupted simulation
    ends("2: unwritable cut", *run[:-1], "cut")


@pytest.mark.parametrize(("more", "refused"), [((), "2: mismatch x"), (("--sweep",), "3: malformed x/rows.jsonl:1")])
def test_bench_leaves_the_results_of_simulations_alone(more: tuple[str, ...], refused: str, here: Path) -> None:
    assert main(["simulate", *SIMULATION, "-o", "x", *more]) == 0
    before = {path.name: path.read_text() for path in (here / "x").iterdir()}
    ends(refused, "bench", *CASES["bench"][0], "-o", "x")
    assert {path.name: path.read_text() for path in (here / "x").iterdir()} == before


@pytest.mark.parametrize(
    "words", [("simulate", *SIMULATION), ("simulate", *SIMULATION, "--sweep"), ("bench", *CASES["bench"][0])]
)
def test_a_dash_is_no_folder(words: tuple[str, ...], here: Path) -> None:
    ends("2: unwritable output", *words, "-o", "-")
    assert [path.name for path in here.iterdir()] == ["jobs.csv"]


def test_traces_go_to_no_folder_that_cannot_be_made(here: Path) -> None:
    (here / "file").write_text("")
    call = ["export", PAIR, PLAN, "--to", "chakra", "-o"]
    ends("2: unwritable file/below", *call, "file/below")
    ends("2: unwritable " + "x" * 300, *call, "x" * 300)


def test_no_two_simulations_go_into_a_folder_at_once(here: Path) -> None:
    assert main(["simulate", *SIMULATION, "-o", "out"]) == 0
    with ResultFolder(Path("out"), force=True).alone([]):
        ends("1: JigsawError", "simulate", *SIMULATION, "-o", "out", "--force")
    assert main(["simulate", *SIMULATION, "-o", "out", "--force"]) == 0
