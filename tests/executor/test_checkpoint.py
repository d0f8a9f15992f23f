"""A worker's state in a file: it comes back as it was, and whatever else is in the file is refused in one error."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from replayed import instance

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.executor.models.building import build
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.executor.worker import TrainingRecipe, Worker, ZooWorker
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import refuses

PROBLEM = instance()
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.01, "momentum": 0.9},
    "adam": {"lr": 0.01, "amsgrad": True, "foreach": True},
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
}


def worker(optimiser: str = "sgd", options: dict[str, Any] | None = None) -> Worker:
    replica = build("net", PROBLEM.models["net"], seed=0)
    return ZooWorker(0, replica, TrainingRecipe(optimiser, options or OPTIONS[optimiser], 0), torch.device("cpu"))  # type: ignore[arg-type]


def trained(optimiser: str = "sgd", iterations: int = 2) -> Worker:
    made = worker(optimiser)
    for level in (1, 3, 2)[:iterations]:
        made.block(level, lambda bucket: None)
    return made


@pytest.fixture(scope="module")
def request_() -> ReplayRequest:
    plan = solve(PROBLEM, "greedy", Options(seed=0)).plan
    assert plan is not None
    return ReplayRequest(PROBLEM, plan)


@pytest.fixture
def checkpoint(tmp_path: Path, request_: ReplayRequest) -> Checkpoint:
    return Checkpoint(tmp_path, request_)


def file(folder: Path) -> Path:
    return folder / "job0-worker0-iteration2.pt"


def refused(checkpoint: Checkpoint, own: Worker) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        checkpoint.load(0, own, 2)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("optimiser", OPTIONS)
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_state_comes_back_as_it_was(checkpoint: Checkpoint, optimiser: str, iterations: int) -> None:
    first, second = trained(optimiser, iterations), worker(optimiser)
    checkpoint.save(0, first)
    checkpoint.load(0, second, iterations)
    for one in (first, second):
        one.block(3, lambda bucket: None)
        one.step()
    for own, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(own, other)
    assert second.iteration == iterations + 1


def test_every_problem_is_told_at_once(checkpoint: Checkpoint, tmp_path: Path) -> None:
    state = trained().state()
    first, *others = state["model"]
    state["model"][first] = state["model"][first].to(torch.float64)
    state["model"][others[0]] = torch.zeros(3)
    del state["model"][others[1]]
    state["model"]["more"] = torch.zeros(1)
    state["optimiser"]["state"][0]["momentum_buffer"] = None
    state["optimiser"]["state"][1] = None
    state["iteration"] = "2"
    torch.save(state, file(tmp_path))
    said = refused(checkpoint, worker())
    assert len(said) == 7
    for part in (
        "is float64 of shape",
        "of shape [3]",
        "lacks the key",
        "unknown key 'more'",
        "is None",
        "of type str",
    ):
        assert any(part in one for one in said), part


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.update(iteration=3), "mismatch $.iteration"),
        (lambda state: state.update(iteration=-1), "mismatch $.iteration"),
        (lambda state: state.update(iteration=True), "mismatch $.iteration"),
        (lambda state: state.update(iteration=10**400), "mismatch $.iteration"),
        (lambda state: state.update(optimiser=None), "mismatch $.optimiser"),
        (lambda state: state["optimiser"].update(state={}), "; ".join(6 * ["missing-field $.optimiser.state"])),
        (lambda state: state["optimiser"]["param_groups"][0].update(lr=9.0), "mismatch $.optimiser"),
        (
            lambda state: state["optimiser"]["param_groups"][0].update(lr=torch.ones(2)),
            "mismatch $.optimiser.param_groups[0].lr",
        ),
        (lambda state: state["optimiser"]["param_groups"].clear(), "wrong-count $.optimiser.param_groups"),
        (lambda state: state.update(model=[]), "mismatch $.model"),
        (lambda state: state.clear(), "; ".join(3 * ["missing-field $"])),
    ],
)
def test_a_state_that_is_none_is_refused(checkpoint: Checkpoint, tmp_path: Path, change: Any, told: str) -> None:
    state = trained().state()
    change(state)
    torch.save(state, file(tmp_path))
    with refuses(told.replace("$", f"{file(tmp_path)} $")):
        checkpoint.load(0, worker(), 2)


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda tensor: tensor.to("meta"), torch.Tensor.tolist])
def test_a_tensor_of_another_kind_is_refused(checkpoint: Checkpoint, tmp_path: Path, make: Any) -> None:
    state = trained().state()
    name = next(iter(state["model"]))
    state["model"][name] = make(state["model"][name])
    torch.save(state, file(tmp_path))
    (said,) = refused(checkpoint, worker())
    assert str(file(tmp_path)) in said


class _Code:
    """What a forged file would have called when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Path, str]]:
        return Path.write_text, (self.marker, "")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_names_no_code(checkpoint: Checkpoint, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save(trained().state() | {"iteration": _Code(marker)}, file(tmp_path))
    with refuses(f"unreadable {file(tmp_path)}"):
        checkpoint.load(0, worker(), 2)
    file(tmp_path).write_bytes(pickle.dumps(_Code(marker)))
    with refuses(f"unreadable {file(tmp_path)}"):
        checkpoint.load(0, worker(), 2)
    assert not marker.exists()


VALUES = (None, True, -1, 0, 2**70, 0.5, float("nan"), "x", b"x", [], {}, (), [[1]], 3 + 4j)


def change_somewhere(tree: Any, draw: random.Random) -> None:
    """Delete, add, exchange or replace something."""
    places, left = [], [tree]
    while left:
        box = left.pop()
        own = list(box.items() if isinstance(box, dict) else enumerate(box))
        places += [(box, key) for key, _ in own]
        left += [value for _, value in own if isinstance(value, (dict, list))]
    (box, key), (other_box, other_key) = draw.choice(places), draw.choice(places)
    tensors = (torch.zeros(2, 2), torch.zeros((), dtype=torch.int64), torch.full((64,), float("nan")))
    match draw.randrange(4):
        case 0:
            del box[key]
        case 1:
            box[key], other_box[other_key] = copy.deepcopy((other_box[other_key], box[key]))
        case 2 if isinstance(box, dict):
            box[draw.choice(("more", 5, None, (1, 2), 0.5))] = draw.choice(tensors)
        case _:
            box[key] = draw.choice((*VALUES, *tensors))


@pytest.mark.parametrize("optimiser", OPTIONS)
def test_whatever_is_changed_it_is_refused_or_trains(checkpoint: Checkpoint, tmp_path: Path, optimiser: str) -> None:
    draw, whole, seen = random.Random(optimiser), trained(optimiser).state(), Counter[str]()
    for number in range(120):
        state = copy.deepcopy(whole)
        for _ in range(1 + number % 2):
            change_somewhere(state, draw)
        torch.save(state, file(tmp_path))
        own = worker(optimiser)
        try:
            checkpoint.load(0, own, 2)
        except InvalidInputError as error:
            assert error.problems
            seen["refused"] += 1
            continue
        own.block(3, lambda bucket: None)  # the next block steps
        own.step()
        seen["trains"] += 1
    assert seen["refused"] > 60 and seen["trains"] > 0


def test_a_damaged_file_is_refused_or_is_the_same(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.save(0, trained())
    whole, draw, own, refusals = file(tmp_path).read_bytes(), random.Random(1), worker(), 0
    for number in range(150):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[draw.randrange(len(data)) :]
        for _ in range(0 if number % 3 == 0 else draw.choice((1, 1, 40))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        file(tmp_path).write_bytes(data)
        try:
            checkpoint.load(0, own, 2)
        except InvalidInputError as error:
            refusals += all(str(file(tmp_path)) in str(problem) for problem in error.problems)
            assert number % 3 or "--resume" in error.problems[0].hint
    assert refusals > 50


def test_names_of_files_that_are_none_are_passed_over(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.save(0, trained())
    for name in ("iteration0", "iteration02", "iteration" + "9" * 17, "iteration-1"):
        (tmp_path / f"job0-worker0-{name}.pt").touch()
    assert checkpoint._iterations(0, 0) == [2]
