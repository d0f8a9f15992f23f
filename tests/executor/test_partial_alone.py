"""`PartialBackprop` in one process: what is saved, where gradients stop, cuts that are found, and what is refused."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from partial_networks import CASES, Shared, SkipCnn, Sometimes, TiedGpt, built, images, loss_of, rows, tokens
from torch import nn
from torch.utils.checkpoint import checkpoint

import jigsaw_opt
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.partial.forward_order import observe
from tests.refusals import misuse

PLAIN = [name for name in CASES if name not in ("checkpointing", "checkpointed by function")]


def at_level(model: PartialBackprop, level: int) -> PartialBackprop:
    """A lone worker must go to full depth, so tests of levels set the rule aside."""
    model._rule = lambda iteration: (level,)
    return model


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(6)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", [1, 2])
def test_gradients_of_a_level_are_those_of_the_whole_pass_and_the_others_are_none(name: str, level: int) -> None:
    case = CASES[name]
    whole = built(case)
    loss_of(case, whole, 0, 1).backward()
    model = at_level(PartialBackprop(built(case), case.cuts), level)
    loss_of(case, model, 0, 1).backward()
    assert model._parts is not None
    reached = 0
    for (key, own), other in zip(model.named_parameters(), whole.parameters(), strict=True):
        if model._parts.buckets[own] > level or other.grad is None:
            assert own.grad is None
        else:
            torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=1e-6, msg=key)
            reached += 1
        assert own.requires_grad == other.requires_grad
    assert reached > 0


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("level", [1, 2])
def test_nothing_is_saved_before_the_cut(name: str, level: int) -> None:
    case = CASES[name]
    model = at_level(PartialBackprop(built(case), case.cuts), level)
    saved: dict[bool, int] = {False: 0, True: 0}
    begun = []
    model.module.get_submodule(case.cuts[-level]).register_forward_pre_hook(lambda *_: begun.append(True))

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[bool(begun)] += 1
        return tensor

    loss_of(case, model, 0, 0)
    begun.clear()
    saved.update({False: 0, True: 0})
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(case, model, 0, 0)
    assert saved[False] == 0 < saved[True]


@pytest.mark.parametrize("functional", [False, True])
def test_a_parameter_belongs_to_the_part_of_its_first_use(functional: bool) -> None:
    model = PartialBackprop(TiedGpt(functional=functional), ["blocks.3", "blocks.1"])
    parts = model.prepare(tokens(torch.Generator().manual_seed(0)))
    assert parts.cuts == ("blocks.1", "blocks.3")
    buckets = {name: parts.buckets[p] for name, p in model.named_parameters()}
    assert {name: buckets[name] for name in ("table.weight", "positions", "norm.bias")} == {
        "table.weight": 3,
        "positions": 3,
        "norm.bias": 1,
    }
    assert {number for name, number in buckets.items() if name.startswith(("blocks.1", "blocks.2"))} == {2}


def test_the_first_passes_change_neither_buffers_nor_generators_nor_inputs() -> None:
    torch.manual_seed(5)
    network, seen = SkipCnn(normed=True), images(torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    draws, copied = torch.get_rng_state(), seen.clone()
    PartialBackprop(nn.Sequential(nn.ReLU(inplace=True), network, nn.Dropout()), 1).prepare(seen)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert torch.equal(draws, torch.get_rng_state()) and torch.equal(seen, copied)
    assert all(p.requires_grad for p in network.parameters())


def test_the_first_passes_leave_parameters_that_a_module_changes_by_itself() -> None:
    class Taught(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = nn.Linear(6, 6), nn.Linear(6, 6).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> Any:
            with torch.no_grad():
                self.teacher.weight.lerp_(self.student.weight, 0.1)
            return self.student(x) - self.teacher(x)

    network = Taught()
    before = network.teacher.weight.clone()
    PartialBackprop(network, []).prepare(torch.ones(2, 6))
    assert torch.equal(network.teacher.weight, before)


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_cuts_are_found_and_described(count: int) -> None:
    model = jigsaw_opt.PartialBackprop(stack(), cuts=count)
    with misuse("wrong-order"):
        model.describe()
    model(torch.ones(2, 6)).sum().backward()
    found = model.describe()
    assert len(found.levels) == count + 1 and found.levels[-1].cut is None
    assert [level.level for level in found.levels] == list(range(1, count + 2))
    assert [level.parameters for level in found.levels][-1] == 6 * 42
    held = [level.parameters for level in found.levels]
    assert held == sorted(set(held)) and all(level.gradient_bytes == 4 * level.parameters for level in found.levels)
    assert found.levels[-1].share == 1
    table = str(found).splitlines()
    assert len(table) == count + 2 and table[-1].split()[:3] == [str(count + 1), "the", "input"]


def test_autocast_keeps_no_weights_from_one_timed_pass_to_the_next() -> None:
    """Weights that autocast turned into another type in an earlier pass would get all their gradients last."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(6, 6), nn.LayerNorm(6))))
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            order = observe(model, (torch.ones(2, 6),), {})
        arrived = [name for p in order.gradients_us for name, own in model.named_parameters() if own is p]
        assert [int(name.partition(".")[0]) for name in arrived] == [at for at in range(7, -1, -1) for _ in range(2)]


def test_what_the_first_pass_does_not_use_is_told() -> None:
    model = PartialBackprop(Sometimes(), ["dense", "head"], "full")
    model.prepare(torch.zeros(1, 2, dtype=torch.int64))
    assert model.describe().unused == 2 * 72
    assert str(model.describe()).endswith(
        "the first pass did not use 144 of these parameters: they are in the last level"
    )


@pytest.mark.parametrize(
    ("cuts", "levels", "refused"),
    [
        (["1", "x"], "full", "unknown-name cuts"),
        (["late.1", "1", "1"], "full", "unknown-name cuts; duplicate-name cuts"),
        ("1", "full", "wrong-type cuts"),
        (-1, "full", "wrong-type cuts"),
        (None, "full", "wrong-type cuts"),
        (2.0, "full", "wrong-type cuts"),
        (["1"], "half", "unknown-value levels"),
        (["1"], jigsaw_opt.FreeDepth(balance=1), "unsupported balance"),
        (["1"], jigsaw_opt.LevelSchedule(3, 1), "mismatch levels"),
        (6, "full", "out-of-range cuts"),
        (["1"], lambda iteration, worker: 3, "out-of-range levels"),
        (["1"], ["full"], "wrong-type levels"),
    ],
)
def test_what_makes_no_sense_is_refused(cuts: Any, levels: Any, refused: str) -> None:
    with misuse(refused):
        PartialBackprop(stack(), cuts, levels)(torch.ones(2, 6))


def test_numbers_of_other_types_are_refused() -> None:
    wrong = {"granularity": 1.5, "seed": True, "debug": "1", "efficiency_every": float("nan"), "average_every": 1.5}
    with misuse("; ".join(f"wrong-type {name}" for name in wrong)):
        PartialBackprop(stack(), ["1"], **wrong)  # type: ignore[arg-type]
    model = PartialBackprop(stack(), ["1"])
    with misuse("wrong-type iteration"):
        model.iteration = True
    with misuse("wrong-type rate_power"):
        model.adapt(torch.optim.SGD(model.parameters()), rate_power="x")  # type: ignore[arg-type]


def expanded() -> nn.Sequential:
    """A network of which a buffer is a view that repeats one number."""
    network = stack()
    network.register_buffer("scale", torch.ones(1).expand(6))
    return network


def twice_named() -> nn.Sequential:
    network = stack()
    network.ending = network[5]
    return network


@pytest.mark.parametrize(
    ("make", "cuts", "told", "named"),
    [
        (TiedGpt, ["blocks"], "unknown-name cuts", ""),
        (twice_named, ["5", "3", "ending"], "duplicate-name cuts", ""),
        (nn.ReLU, [], "empty module", ""),
        (lambda: nn.Sequential(nn.SyncBatchNorm(6), nn.Linear(6, 6)), ["1"], "unsupported module", "SyncBatchNorm"),
        (lambda: nn.LazyLinear(3), [], "unsupported module", ""),
        (lambda: nn.Sequential(nn.ReLU(), nn.DataParallel(stack())), [], "unsupported module", "'1'"),
        (lambda: nn.Sequential(nn.ReLU(), PartialBackprop(stack(), [])), [], "unsupported module", "'1'"),
        (expanded, [], "unsupported module", " scale "),
    ],
)
def test_what_cannot_be_cut_or_trained_is_refused(make: Any, cuts: list[str], told: str, named: str) -> None:
    with misuse(told, naming=[named]):
        PartialBackprop(make(), cuts)(torch.zeros(2, 6, dtype=torch.int64 if make is TiedGpt else torch.float32))
    with misuse("unsupported module"):
        PartialBackprop(stack(), [])._replicate_for_data_parallel()


@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_checkpointing_that_would_lose_gradients_is_refused() -> None:
    class Reentrant(TiedGpt):
        def forward(self, tokens: torch.Tensor) -> Any:
            x = self.table(tokens)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=True)
            return self.ending(x), tokens

    inputs = tokens(torch.Generator())
    with misuse("unsupported checkpointing"):
        PartialBackprop(Reentrant(), ["blocks.1"])(inputs)
    PartialBackprop(Reentrant(), [])(inputs)[0].sum().backward()


def test_what_is_checkpointed_stays_frozen_when_it_runs_again_whatever_holds_the_outputs() -> None:
    @dataclass
    class Outputs:
        logits: torch.Tensor

    class Held(TiedGpt):
        def ending(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(torch.zeros(32), self.norm(x).flatten(0, 1), self.table.weight.T)

        def forward(self, tokens: torch.Tensor) -> Any:
            return UserDict(outputs=[Outputs(super().forward(tokens)[0])])

    torch.manual_seed(1)
    model = at_level(PartialBackprop(Held(checkpointed=True), ["blocks.1"]), 1)
    model(tokens(torch.Generator()))["outputs"][0].logits.square().sum().backward()
    assert model.table.weight.grad is None and model.norm.weight.grad.any()


@pytest.mark.slow
@pytest.mark.parametrize("outside", [False, True])
def test_a_compiled_module_has_the_same_gradients(outside: bool) -> None:
    case = CASES["tied"]
    whole, network = built(case), built(case)
    loss_of(case, whole, 0, 0).backward()
    inside = network if outside else torch.compile(network, backend="aot_eager")
    model = at_level(PartialBackprop(inside, case.cuts), 2)
    loss_of(case, torch.compile(model, backend="aot_eager") if outside else model, 0, 0).backward()
    assert model._parts is not None
    for own, other in zip(network.parameters(), whole.parameters(), strict=True):
        if model._parts.buckets[own] <= 2:
            torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=1e-6)
        else:
            assert own.grad is None


def test_processes_without_a_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with misuse("wrong-order WORLD_SIZE"):
        PartialBackprop(stack(), 1)


class Failing(nn.Module):
    """Fails in the forward pass, in the backward pass, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late, self.where = nn.Linear(6, 6), nn.Linear(6, 6), ""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.late(self.early(x))
        if self.where == "forward":
            raise ZeroDivisionError
        if self.where == "backward":
            x.register_hook(lambda gradient: 1 / 0)
        return x.sin()


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_after_a_failure_nothing_stays_frozen_and_training_goes_on(where: str) -> None:
    model = at_level(PartialBackprop(Failing(), ["late"]), 1)
    model.prepare(torch.ones(2, 6))
    model.module.where = where
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(2, 6)).sum().backward()
    assert all(p.requires_grad for p in model.parameters()) and model.iteration == 0
    model.module.where = ""
    model(torch.ones(2, 6)).sum().backward()
    assert model.iteration == 1
    assert [p.grad is not None for p in model.parameters()] == [False, False, True, True]


def test_layers_may_be_frozen_and_set_free_while_training() -> None:
    model = PartialBackprop(stack(), ["3"])
    model.module[4].requires_grad_(False)
    model(torch.ones(2, 6)).sum().backward()
    model.module[4].requires_grad_(True)
    model.module[5].requires_grad_(False)
    assert model.module[4].weight.grad is None
    at_level(model, 1)(torch.ones(2, 6)).sum().backward()
    assert model.module[4].weight.grad is not None and model.module[5].weight.requires_grad is False


def test_new_parameters_are_refused() -> None:
    model = PartialBackprop(stack(), ["5"])
    model(torch.ones(2, 6)).sum().backward()
    model.module[5] = nn.Linear(6, 6)
    with misuse("mismatch module"):
        model(torch.ones(2, 6))


def test_the_module_is_at_hand_under_its_own_names() -> None:
    network = stack()
    model = PartialBackprop(network, ["3"])
    assert list(model.state_dict()) == list(network.state_dict())
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in network.named_parameters()]
    other = stack()
    nn.init.zeros_(other[0].weight)
    model.load_state_dict(other.state_dict())
    assert not network[0].weight.any()
    network.note = "seen"
    assert model.note == "seen"
    with pytest.raises(AttributeError, match="nothing"):
        model.nothing  # noqa: B018 - that is what is tested
    whole = nn.ModuleDict({"net": model})
    assert list(whole.state_dict()) == [f"net.{name}" for name in network.state_dict()]
    whole.load_state_dict(whole.state_dict())


def one_level(iteration: int, worker: int) -> int:
    return 1


def test_copies_train_on_by_themselves_and_a_function_within_another_one_is_not_pickled() -> None:
    inputs = torch.ones(2, 6)
    for copied in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        for levels, reached in (("rotation", 12), (one_level, 6)):
            model = PartialBackprop(stack(), ["3"], levels)
            model(inputs).sum().backward()
            model.zero_grad()
            other = copied(model)
            other(inputs).sum().backward()
            assert (model.iteration, other.iteration) == (1, 2)
            assert sum(p.grad is not None for p in other.parameters()) == reached
    local = PartialBackprop(stack(), ["3"], lambda iteration, worker: 1)
    with misuse("unsupported levels"):
        pickle.dumps(local)
    assert copy.deepcopy(local)._levels is local._levels


def test_what_is_let_go_is_freed() -> None:
    model = PartialBackprop(stack(), ["3"])
    model(torch.ones(2, 6)).sum().backward()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_accumulation_keeps_the_iteration_and_evaluation_does_not_count() -> None:
    model = PartialBackprop(Shared(), ["last"])
    inputs = rows(torch.Generator().manual_seed(0))
    with model.no_sync():
        model(inputs).sum().backward()
    assert model.iteration == 0
    first = model.last.bias.grad.clone()
    with torch.no_grad():
        model(inputs)
    (gradient,) = torch.autograd.grad(model(inputs).sum(), [model.last.bias])
    assert model.iteration == 0 and torch.equal(gradient, first)
    model(inputs).sum().backward()
    assert model.iteration == 1
    torch.testing.assert_close(model.last.bias.grad, 2 * first)
