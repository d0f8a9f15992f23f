"""Pipelines of the zero-bubble benchmark: instances, and a row of the table."""

from __future__ import annotations

from pathlib import Path

import pipelines
import pytest

from jigsaw_opt.solvers.solve import solve

ENTRY = {"p": 2, "m": 4, "f": 5, "b": 6, "w": 4, "comm": 0, "mem_f": 2, "mem_b": -1, "mem_w": -1, "max_mem": 8}


def test_an_entry_becomes_a_pipeline_that_flushes() -> None:
    instance = pipelines.zero_bubble(ENTRY)
    shape = instance.task_graph_jobs[0].shape
    assert (len(shape.slots), len(shape.blocks), len(shape.transfers), len(shape.holds)) == (2, 24, 8, 16)
    result = solve(instance, "greedy")
    assert result.bound == 4 * (5 + 6 + 4)
    assert result.objective is not None
    # 1F1B takes 75.
    assert 60 <= result.objective < 75


def test_what_is_not_freed_again_is_refused() -> None:
    with pytest.raises(ValueError, match="free what the forward pass takes"):
        pipelines.zero_bubble(ENTRY | {"mem_w": -2})


def test_without_the_data_it_says_where_they_would_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JIGSAW_SHARED", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["pipelines.py"])
    with pytest.raises(SystemExit, match="2"):
        pipelines.main()
    assert "JIGSAW_SHARED" in capsys.readouterr().err
