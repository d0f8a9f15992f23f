"""The benchmark of learning with SPB: its data, its judgement, and a quick run from end to end."""

from __future__ import annotations

import csv
from math import inf
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from spb.design import COMPARISONS, Design  # noqa: E402
from spb.subjects import SUBJECTS, samples  # noqa: E402
from spb.summary import findings, verdict  # noqa: E402
from spb.training import Method, Run, Setting, train  # noqa: E402
from spb_learning import main, quick  # noqa: E402

from jigsaw_opt.executor.models.zoo.batches import topics_text  # noqa: E402
from jigsaw_opt.sweeps.intervals import MeanInterval  # noqa: E402

TEXT = SUBJECTS["text-gpt"]


@pytest.mark.slow
def test_a_quick_run_leaves_tables_and_a_picture_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked = ["--quick", "--subjects", "text-gpt", "-o", str(tmp_path)]
    main(asked)
    rows = (tmp_path / "text-gpt.jsonl").read_text().splitlines(keepends=True)
    found = (tmp_path / "learning.csv").read_text()
    table = list(csv.DictReader(found.splitlines()))
    assert [(row["method"], row["workers"]) for row in table] == [
        (method, workers) for method in ("rotation", "free", "equal time") for workers in ("2", "4")
    ]
    assert all(row["seeds"] == "2" and 0 < float(row["operations_saved"]) < 50 for row in table[:4])
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "learning.md").read_text().count("\n") == 2 + len(table)
    (tmp_path / "text-gpt.jsonl").write_text("".join(rows[:-3]))
    main(asked)
    again = (tmp_path / "text-gpt.jsonl").read_text().splitlines(keepends=True)
    assert again[:-3] == rows[:-3] and len(again) == len(rows)
    assert (tmp_path / "learning.csv").read_text() == found  # runs repeat exactly, and blocks are not timed again


def test_runs_repeat_and_methods_differ_only_after_the_warm_up() -> None:
    setting = Setting("adam")

    def points(method: Method) -> list[list[float]]:
        run = Run(4, 3, setting, method, 0.01, 4)
        return [point[:3] for point in train(TEXT, run)["points"]]

    full, late = points(Method("full")), points(Method(warm_up=50))
    assert points(Method(warm_up=50)) == late
    assert full[:2] == late[:2] and full[2:] != late[2:]


def test_no_text_that_is_held_out_is_trained_on(seed: int = 3) -> None:
    data, whole = samples(TEXT, seed), topics_text()
    size = len(whole) // 10
    trained = torch.zeros(len(whole), dtype=torch.bool)
    for offset in range(int(TEXT.arguments["rows"]) + 1):
        trained[data.training + offset] = True
    held = torch.arange(seed * size, (seed + 1) * size)
    assert not trained[held].any()
    assert trained.sum() >= 0.99 * (len(whole) - size)
    inputs, targets = data.held_out
    assert torch.equal(inputs[0], whole[held[: inputs.shape[1]]])
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_an_interval_is_students_and_decides_in_three_ways() -> None:
    interval = MeanInterval.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (interval.mean, interval.half) == (3.0, pytest.approx(2.776 * (2.5 / 5) ** 0.5))
    assert MeanInterval.of([1.0]).half == inf
    assert verdict(MeanInterval(-0.1, 0.4)) == "within"
    assert verdict(MeanInterval(-0.1, 0.5)) == "open"
    assert verdict(MeanInterval(-1.1, 0.5)) == "worse"


def test_findings_pair_runs_by_seed_and_take_the_best_rate() -> None:
    design = quick(TEXT)
    rows = {}
    for task in design.first():
        made = {"block_us": [1.0, 2.0, 3.0, 4.0], "operations": [1.0, 1.0, 1.0, 4.0]}
        if "Run" in task.key:
            good = task.arguments[1].rate == TEXT.rates["adam"][1]
            made = {"points": [[4, 0.5, 1.0 if good else 2.0, 0, 0, 0, 4]]}
        rows[task.key] = made
    for task in design.second(rows):
        run = task.arguments[1]
        full = run.method.rule == "full"
        accuracy = 0.6 + 0.1 * run.seed - (0 if full else 0.02 + 0.01 * run.seed)
        blocks = [0, 0, 0, run.workers] if full else [0, run.workers, 0, 0]
        rows[task.key] = {"points": [[run.iterations, accuracy, 1.0, *blocks]]}
        assert run.rate == TEXT.rates["adam"][1]
    first = findings(design, rows)[0]
    assert (first.method, first.workers, first.seeds) == ("rotation", 2, 2)
    assert (first.points, first.points_half) == (pytest.approx(-2.5), pytest.approx(12.706 * 0.5))
    assert (first.time_saved, first.operations_saved) == (pytest.approx(50), pytest.approx(75))
    longer = {run.iterations for name, _, run in design.pairs(rows) if name == "equal time" and run.workers == 2}
    assert longer == {round(4 / 0.75)}  # levels 2 and 4 of 4 instead of 4 and 4


def test_every_subject_names_comparisons_that_exist_and_batches_that_its_workers_share() -> None:
    for subject in SUBJECTS.values():
        assert set(subject.comparisons) <= COMPARISONS.keys()
        assert subject.seeds >= 5 and all(subject.batch % workers == 0 for workers in Design(subject).workers)
