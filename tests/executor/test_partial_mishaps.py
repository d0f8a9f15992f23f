"""Passes that fail, run again or differ between processes give right gradients or an error, and never wrong ones."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_mishaps import mishaps  # noqa: E402

from jigsaw_opt.executor.processes import run_group  # noqa: E402

pytestmark = pytest.mark.xdist_group("mishaps of partial backpropagation")


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(mishaps, 2)


@pytest.mark.parametrize("loop", ["experts", "checkpointed", "two models", "failures", "sending", "two wrappers"])
def test_gradients_are_means_over_contributors(found: list[dict[str, Any]], loop: str) -> None:
    assert all(len(rank[loop]) >= 2 and max(rank[loop]) <= 1e-5 for rank in found)


def test_a_parameter_is_placed_by_the_first_process_that_uses_it(found: list[dict[str, Any]]) -> None:
    assert [rank["placed"] for rank in found] == [(72, [2, 2])] * 2


def test_gradients_follow_the_type_of_parameters(found: list[dict[str, Any]]) -> None:
    assert all(rank["double"] <= 1e-13 for rank in found)


def test_passes_that_differ_between_processes_are_refused_and_leave_no_trace(found: list[dict[str, Any]]) -> None:
    told = found[0]["refused"]
    zeroth, second = (f"early.{at}.weight, early.{at}.bias" for at in (0, 2))
    for name, fact, values in (
        ("levels", "levels", ("(1, 2)", "(2, 1)")),
        ("iteration", "iteration", ("0", "1")),
        ("frozen", "frozen parameters", (zeroth, second)),
    ):
        refusal, said = told[name]
        assert refusal == f"mismatch {fact}"
        assert said.endswith("; ".join(f"{value} on rank {rank}" for rank, value in enumerate(values)))
    refusal, said = told["type"]
    assert refusal == "mismatch model" and "early.0.weight torch.float32" in said
    assert told["afterwards"] == ("nothing", "")
    differing = ("levels", "iteration", "frozen", "type")
    assert all(rank["refused"][name] == told[name] for rank in found for name in differing)


def test_wrappers_and_buffers_that_differ_between_processes_are_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["refused"]["turn"][0] == "mismatch wrapper"
        refusal, said = rank["refused"]["buffers"]
        assert refusal == "mismatch broadcast_buffers" and re.findall(r"\(\d,\)", said) == ["(4,)", "(3,)"]


def test_a_failure_of_one_process_ends_the_pass_of_the_other_one(found: list[dict[str, Any]]) -> None:
    told = ["the backward pass failed in another process, so gradients are not averaged", "division by zero"]
    assert [rank["failure of one"][1] for rank in found] == told
    assert all(max(rank["failure of one"][::2]) <= 1e-5 for rank in found)


def test_a_process_that_does_not_come_is_the_named_reason(found: list[dict[str, Any]]) -> None:
    assert found[0]["without the other"].startswith(
        "iteration 0: another process has ended, or has not come to this backward pass within the timeout"
    )


def test_updates_in_the_backward_pass_and_a_second_average_are_refused(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert {rank["refused"][name][0] for name in ("taken", "stepped")} == {"wrong-order optimiser"}
        assert rank["refused"]["updated"][0] == "wrong-order parameters"
        assert rank["refused"]["doubled"][0] == "unsupported module"
