"""The comparison of levers: what its instances say, and a short run from end to end."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")
pytest.importorskip("sklearn", reason="the digits need scikit-learn")

from levers import CLUSTERS, LEVELS, instance, main

from jigsaw_opt import solve


@pytest.mark.parametrize("scarce", CLUSTERS)
def test_transfers_of_whole_gradients_take_the_stated_share_of_a_block(scarce: str) -> None:
    plan = solve(instance(scarce, "full", "", 1, 4.0), work_limit=0.05, threads=1).plan
    assert plan is not None
    own = plan.data_parallel[0].iterations[0]
    sent = sum(transfer.end_us - transfer.start_us for transfer in own.transfers)
    block = own.blocks[0]
    assert sent == pytest.approx(CLUSTERS[scarce] * (block.end_us - block.start_us), rel=1e-3)


@pytest.mark.slow
def test_a_short_run_has_a_row_for_each_combination(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--scarce", "GPUs", "--work", "0.05", "--iterations", "16", "--seeds", "1", "--rates", "0.1"])
    *lines, _, _, first, second = capsys.readouterr().out.splitlines()
    assert all(float(row.split("|")[-2]) >= 1 and "GPUs" in row for row in (first, second))
    cells = [[own.strip() for own in row.split("|")[1:-1]] for row in lines[2:]]
    assert len(cells) == len(LEVELS) * 6 and cells[0][-3:] == ["1.00"] * 3
    for _, levels, _, every, period, bound, made, _, _ in cells:
        refused = every == "4" and levels != "full"
        assert (period == "not allowed") == refused
        assert refused or (float(period) >= float(bound) > 0 and (float(made) == 1) == (levels == "full"))
