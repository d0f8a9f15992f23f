"""Loops that accumulate, replace gradients or use parts now and then train alike on all ranks."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_habits import habits  # noqa: E402

from jigsaw_opt.executor.processes import run_group  # noqa: E402
from tests.refusals import require_data  # noqa: E402

pytestmark = pytest.mark.xdist_group("habits of partial backpropagation")


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """By rank, what each loop came to."""
    return run_group(habits, 3)


@pytest.mark.parametrize("loop", ["accumulation", "two backward passes"])
def test_sums_of_gradients_are_averaged_over_contributors(found: list[dict[str, Any]], loop: str) -> None:
    assert all(rank[loop] <= 1e-6 for rank in found)


def test_replaced_gradients_and_scaled_losses_do_not_drive_ranks_apart(found: list[dict[str, Any]]) -> None:
    for rank in found:
        for own, first in zip(rank["careless"], found[0]["careless"], strict=True):
            assert all(torch.equal(own[key], first[key]) for key in first)


def test_a_gradient_that_one_worker_has_is_there_on_all_and_one_that_nobody_has_on_none(
    found: list[dict[str, Any]],
) -> None:
    used, rare, never = [True], [True, True], [False, False]
    assert [rank["unused"] for rank in found] == [[*used, *used, *used, *rare, *never, *used, *used]] * 3


def test_what_no_worker_reaches_has_a_gradient_nowhere_and_is_not_stepped(found: list[dict[str, Any]]) -> None:
    for rank in found:
        worst, there = rank["function"]
        assert worst <= 1e-6 and there == found[0]["function"][1]
        assert [not all(own) and any(own) for own in there] == [True, False, True, False]


def test_gradients_add_up_until_they_are_cleared_whatever_the_levels(found: list[dict[str, Any]]) -> None:
    """Inputs are 1, 2 and 3 times 1, 10, 100 and 1000: the mean is 2 of all workers, and 2 of the first and third."""
    for rank in found:
        added, said = rank["uncleared"]
        assert added == pytest.approx([15 * 2, 10 * 202, 6 * 2222])
        require_data(said, "earlier passes", "0.weight, 1.weight on ranks 0, 2", "1.weight on rank 1")


def test_workers_whose_level_reaches_no_parameter_take_part(found: list[dict[str, Any]]) -> None:
    """Only the third one contributes, with inputs of 3."""
    assert [rank["behind"] for rank in found] == [[3.0] * 4] * 3


def test_free_levels_keep_contributors_mean_depth_warm_up_and_granularity(found: list[dict[str, Any]]) -> None:
    levels = found[0]["drawn"]
    assert all(rank["drawn"] == levels for rank in found)
    assert levels[0] == (3, 3, 3) and all(levels[k] == levels[k + 1] for k in range(1, 11, 2))
    assert all(own.count(3) >= 2 and sum(own) >= 8 for own in levels)
    assert len(set(levels)) > 2


def test_ranks_that_differ_are_named(found: list[dict[str, Any]]) -> None:
    drifted = "after 2 iterations late.bias differs from that of rank 0 on ranks 2"
    other = "ranks 1, 2 hold parameters of other names, shapes or types than rank 0"
    assert [rank["told"] for rank in found] == [[drifted, other]] * 3


def test_some_processes_train_in_a_group_of_theirs(found: list[dict[str, Any]]) -> None:
    for rank in found:
        worst, told = rank["part"]
        assert worst <= 1e-6 and told == "unsupported group"


def test_all_begin_with_the_parameters_of_the_first(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert all(torch.equal(rank["begins"][key], found[0]["begins"][key]) for key in rank["begins"])
