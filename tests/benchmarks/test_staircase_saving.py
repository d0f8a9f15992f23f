"""The saving of a staircase: the formula, the counts that go beyond it, and a quick run from end to end."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from staircase_saving import CASES, PARTS, WORKERS, Case, dense, formula, main, operations, saved  # noqa: E402


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_blocks_of_equal_parts_save_what_the_formula_says(ratio: int, workers: int) -> None:
    costs = [PARTS + ratio * level for level in range(1, PARTS + 1)]
    assert saved(costs, workers) == pytest.approx(formula(ratio, workers))
    assert formula(2, 4) == 0.25


def test_the_first_layer_of_a_suffix_saves_half_its_backward_pass() -> None:
    counted = operations(Case("", "mlp", dense(16), 8).replica())
    product = 2 * 8 * 16 * 16
    assert counted == [product * (PARTS + 2 * level - 1) for level in range(1, PARTS + 1)]
    assert saved(counted, 4) == pytest.approx(6 / 23)


def test_decoders_have_a_layer_a_part() -> None:
    case = next(case for case in CASES if case.zoo == "gpt")
    assert case.replica().model.names == ("embeddings-layer0", *(f"layer{k}" for k in range(1, 7)), "layer7-output")


def test_a_quick_run_prints_a_row_for_each_number_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--repeats", "1"])
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in capsys.readouterr().out.splitlines()]
    assert [row[5] for row in rows[2:]] == ["2", "4", "8"]
    assert {len(row) for row in rows} == {10}
    assert [row[6] for row in rows[2:]] == ["16.7%", "25.0%", "29.2%"]
    assert [row[8] for row in rows[2:]] == ["17.4%", "26.1%", "30.4%"]
