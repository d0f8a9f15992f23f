"""Profiles of models of any kind: which segments they have, what passes between them, and clear refusals."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_trainings import Wholesome
from partial_networks import CASES, Case, Shared, SkipCnn, built
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import jigsaw_opt
from jigsaw_opt.cli import main
from jigsaw_opt.documents import read_layers
from jigsaw_opt.executor.devices import Spread
from jigsaw_opt.executor.models.leveled_model import saved_by_segment
from jigsaw_opt.executor.profiling import rounds, segment_times, trainee
from jigsaw_opt.executor.profiling.results import is_wide
from jigsaw_opt.executor.profiling.segment_times import _durations
from tests.refusals import misuse

pytestmark = pytest.mark.filterwarnings("ignore:times of blocks")
FEW = {"warm_up": 1, "repeats": 2}


def case_profile(case: Case, model: nn.Module, **options: Any) -> Any:
    inputs = case.draw(torch.Generator().manual_seed(0))
    return jigsaw_opt.profile(
        model, (inputs, torch.zeros(0)), lambda outputs, _: case.loss(outputs), case.cuts, **FEW, **options
    )


@pytest.mark.parametrize("name", ["tied", "batch norm", "frozen", "checkpointed by function", "sometimes"])
def test_models_of_all_kinds_have_a_profile(name: str) -> None:
    case = CASES[name]
    model = built(case)
    found = case_profile(case, model)
    assert [segment.name for segment in found.segments] == ["input", *case.cuts]
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert sum(segment.parameter_bytes for segment in found.segments) == trained
    saved = [level.memory_bytes for level in found.levels]
    assert saved == sorted(saved) and saved[0] > 0
    assert sum(segment.activation_bytes for segment in found.segments) == saved[-1]
    written = found.model()
    blocks = written.block_us("cpu")
    assert blocks[0] > 0 and list(blocks) == sorted(blocks) and written.executor is None
    for segment in found.segments:
        assert segment.input_gradients.median >= 0 and segment.weight_gradients.median >= 0


def test_sizes_are_those_of_the_parts() -> None:
    model = Shared(frozen=True)
    found = jigsaw_opt.profile(model, (torch.randn(5, 6), torch.randn(5, 3)), nn.MSELoss(), ["between", "last"], **FEW)
    first, between, last = found.segments
    # What is shared belongs to the first; what is frozen to none.
    assert first.parameter_bytes == 4 * (8 * 6 + 8 * 8 + 8)
    assert between.parameter_bytes == 0 and between.weight_gradients == Spread(0, 0, 0)
    assert last.parameter_bytes == 4 * (8 * 3 + 3)
    trained = first.parameter_bytes + last.parameter_bytes
    assert found.state_bytes == sum(p.nbytes for p in model.parameters()) + 2 * trained  # gradients, momentum


def test_a_level_may_reach_no_parameter() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).requires_grad_(False)
    model[0].requires_grad_(True)
    found = jigsaw_opt.profile(model, (torch.randn(5, 6), torch.randn(5, 3)), nn.MSELoss(), ["2"], **FEW)
    assert [segment.parameter_bytes for segment in found.segments] == [4 * 7 * 8, 0]
    assert [level.memory_bytes > 0 for level in found.levels] == [False, True]
    assert found.levels[0].block.median > 0 and found.segments[1].weight_gradients == Spread(0, 0, 0)
    assert found.model().depth == 2


def test_inputs_by_name_and_by_position() -> None:
    tokens = torch.randint(16, (2, 4))
    by_name = jigsaw_opt.profile(Wholesome(), {"tokens": tokens, "labels": tokens}, cuts=["middle", "head"], **FEW)
    assert [segment.parameter_bytes for segment in by_name.segments] == [4 * 16 * 12, 4 * 13 * 12, 4 * 16]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    for inputs in ({"input": tokens}, (tokens,), [tokens], tokens):
        model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16))
        found = jigsaw_opt.profile(model, (inputs, tokens), loss, 1, gpu_type="card", **FEW)
        assert len(found.levels) == 2 and found.model().gpu_types == ("card",)


def everything(model: nn.Module, optimiser: torch.optim.Optimizer, generator: torch.Generator) -> list[Any]:
    state = optimiser.state_dict()
    return [
        *(value.clone() for value in model.state_dict().values()),
        *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        *(leaf.clone() for own in state["state"].values() for leaf in own.values() if isinstance(leaf, Tensor)),
        torch.get_rng_state(),
        generator.get_state(),
        torch.tensor([random.getstate()[1]], dtype=torch.int64),
        torch.tensor([[group["lr"], group["weight_decay"]] for group in state["param_groups"]]),
        torch.tensor([module.training for module in model.modules()]),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back_to_the_bit(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.randn(20, 6), torch.randint(3, (20,)))
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        random.random()
        found = nn.functional.cross_entropy(outputs, targets)
        if fails and len(optimiser.state) and float(optimiser.state[model[0].weight]["step"]) > 4:
            raise ZeroDivisionError
        return found

    for inputs, targets in loader:
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    model.eval()
    parameters, gradients = list(model.parameters()), [p.grad for p in model.parameters()]
    before, buffers = everything(model, optimiser, generator), list(model.buffers())
    if fails:
        with pytest.raises(ZeroDivisionError):
            jigsaw_opt.profile(model, loader, loss, 1, optimiser=optimiser, **FEW)
    else:
        assert jigsaw_opt.profile(model, loader, loss, 1, optimiser=optimiser, **FEW).levels
    after = everything(model, optimiser, generator)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True] * len(before)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(a is p.grad for a, p in zip(gradients, parameters, strict=True))
    assert all(a is b for a, b in zip(buffers, model.buffers(), strict=True))
    assert all(p.requires_grad for p in parameters)


def test_a_loader_may_be_a_generator_function_whose_generator_is_put_back() -> None:
    generator = torch.Generator().manual_seed(1)

    def batches() -> Iterator[Any]:
        while True:
            yield torch.randn(4, 6, generator=generator), torch.zeros(4, 3)

    before = generator.get_state()
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    assert len(jigsaw_opt.profile(model, batches, nn.MSELoss(), ["1"], **FEW).levels) == 2
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"cuts": ["lates"]}, "unknown-name cuts"),
        ({"cuts": 99}, "out-of-range cuts"),
        ({"batch": torch.zeros(3)}, "wrong-type batch"),
        ({"batch": (1, 2, 3)}, "wrong-type batch"),
        ({"loss": None}, "wrong-type batch"),
        ({"loss": lambda outputs, _: outputs}, "wrong-type loss"),
        ({"loss": 3, "repeats": 0}, "wrong-type loss; out-of-range repeats"),
        ({"batch": iter([1])}, "unsupported batch"),
        ({"batch": DataLoader([])}, "empty loader"),
        ({"optimiser": "sgd"}, "wrong-type optimiser"),
        ({"optimiser": torch.optim.SGD(nn.Linear(3, 3).parameters(), 0.1)}, "mismatch optimiser"),
        ({"optimiser": torch.optim.LBFGS(nn.Linear(3, 3).parameters())}, "mismatch optimiser; unsupported optimiser"),
        ({"loss": lambda outputs, targets: nn.functional.mse_loss(outputs.detach(), targets)}, "unsupported loss"),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, Any], refused: str) -> None:
    given = {"batch": (torch.randn(2, 3, 8, 8), torch.randn(2, 5)), "loss": nn.MSELoss(), "cuts": 2, **FEW} | change
    with misuse(refused):
        jigsaw_opt.profile(SkipCnn(), given.pop("batch"), given.pop("loss"), given.pop("cuts"), **given)


def test_a_wrapped_model_is_refused() -> None:
    model = jigsaw_opt.PartialBackprop(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), cuts=["1"])
    with misuse("unsupported model"):
        jigsaw_opt.profile(model, (torch.randn(4, 6), torch.randn(4, 3)), nn.MSELoss(), ["1"], **FEW)


def test_a_loss_that_is_no_number_is_told_with_the_rate() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    before = [p.detach().clone() for p in model.parameters()]
    optimiser = torch.optim.SGD(model.parameters(), lr=1e30)
    with misuse("out-of-range loss") as caught:
        jigsaw_opt.profile(
            model, (torch.randn(4, 6), torch.randn(4, 3)), nn.MSELoss(), 1, optimiser=optimiser, warm_up=9, repeats=9
        )
    assert "1e+30" in str(caught.value)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_bounds_that_are_missing_or_late_take_no_time() -> None:
    assert _durations(0, [1, 3], 6) == [1, 2, 3]
    assert _durations(0, [None, 3], 6) == [3, 0, 3]
    assert _durations(0, [4, 3], 6) == [3, 0, 3]
    assert _durations(0, [], 6) == [6]


def test_more_rounds_are_measured_where_times_differ_much(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_wide(Spread(10, 9, 11)) and is_wide(Spread(10, 9, 11.5))
    measured: list[int] = []
    times = rounds.segment_times

    def counted(trainee: Any, turn: int) -> list[float]:
        measured.append(turn)
        return times(trainee, turn)

    monkeypatch.setattr(rounds, "segment_times", counted)
    batch = (torch.randn(4, 6), torch.randn(4, 3))
    for wide, count in ((True, 1 + 3 * 2), (False, 1 + 2)):
        measured.clear()
        monkeypatch.setattr(rounds, "is_wide", lambda _, wide=wide: wide)
        jigsaw_opt.profile(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), batch, nn.MSELoss(), 1, **FEW)
        assert measured == list(range(count))


def test_levels_that_differ_much_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jigsaw_opt.executor.profiling.results.is_wide", lambda _: True)
    batch = (torch.randn(4, 6), torch.randn(4, 3))
    with pytest.warns(UserWarning, match=r"1, 2 .* 20 %") as caught:
        jigsaw_opt.profile(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)), batch, nn.MSELoss(), 1, **FEW)
    assert caught[0].filename == __file__


def test_times_are_those_of_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = FlopCounterMode(display=False)
    for module in (segment_times, trainee):
        monkeypatch.setattr(module, "work_us", lambda _: float(counter.get_total_flops()))
    model = Wide(nn.Linear(8, 8))
    with counter:
        found = jigsaw_opt.profile(model, (torch.randn(5, 8), torch.randn(5, 4)), nn.MSELoss(), ["up", "last"], **FEW)
    product = 2 * 5 * 8 * 8  # of the shared layer; those of the others are 2, 2 and 1/2 times as large
    rows = [[s.forward, s.backward, s.input_gradients, s.weight_gradients] for s in found.segments]
    assert [[spread.median / product for spread in row] for row in rows] == [
        [1, 1, 0, 1],  # the first layer's inputs need no gradient
        [5, 9, 5, 4],  # up, down, and the shared one, whose weights have their gradient from its first use
        [0.5, 1, 0.5, 0.5],
    ]
    # At full depth the shared layer has its second gradient, too.
    assert [level.block.median / product for level in found.levels] == [7, 14.5, 18.5]
    assert all(s.step_us == 0 for s in found.segments)


class Wide(nn.Module):
    """A layer that stands before a pair and behind it."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared, self.up, self.down, self.last = shared, nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.shared(self.down(self.up(self.shared(x)).tanh())).tanh())


def test_what_is_freed_before_the_forward_pass_ends_is_not_counted() -> None:
    weight = nn.Parameter(torch.ones(64))

    def forward(enter: Any) -> Tensor:
        enter(0)
        for _ in range(3):
            (weight * torch.ones(64)).sum()  # a metric whose graph is dropped at once, and whose memory is used again
        enter(1)
        return (weight * torch.ones(64)).sum()

    assert [saved_by_segment(forward, [weight], 2) for _ in range(5)] == [(0, 256)] * 5


ROWS = 5


class Skipping(nn.Module):
    """Its third part reads what the first one puts out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.last = nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs: Tensor, weights: Tensor) -> Tensor:
        values = self.first(inputs)
        outputs = self.blocks[1](self.blocks[0](values) * weights)
        result: Tensor = self.last(outputs) + values[:, :2] * weights
        return result


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        ones = torch.eye(8).to_sparse().to_dense()
        result: Tensor = self.last(self.first(inputs) @ ones)
        return result


def measured(model: nn.Module, cuts: list[str], *inputs: Tensor) -> jigsaw_opt.ModelProfile:
    batch = ((torch.randn(ROWS, 4), *inputs), torch.zeros(ROWS, 2))
    return jigsaw_opt.profile(model, batch, nn.MSELoss(), cuts, warm_up=1, repeats=1)


def test_what_skips_a_segment_passes_both_its_boundaries() -> None:
    found = measured(Skipping(), ["blocks.0", "blocks.1", "last"], torch.ones(ROWS, 1))
    row = 4 * ROWS * 8
    assert [segment.output_bytes for segment in found.segments] == [row, 2 * row, 2 * row, None]
    modules = [("first",), ("blocks.0",), ("blocks.1",), ("last",)]
    assert [segment.modules for segment in found.segments] == modules


def test_modules_are_named_where_a_segment_has_all_of_them() -> None:
    found = measured(Skipping(), ["first.1", "last"], torch.ones(ROWS, 1))
    assert [segment.modules for segment in found.segments] == [
        ("first.0",),
        ("first.1", "blocks.0", "blocks.1"),
        ("last",),
    ]


def test_a_tensor_without_a_storage_leaves_open_what_is_sent() -> None:
    assert [segment.output_bytes for segment in measured(Sparse(), ["last"]).segments] == [None, None]


def test_a_layer_profile_has_times_of_a_pass() -> None:
    found = measured(Skipping(), ["blocks.0", "last"], torch.ones(ROWS, 1))
    graph = found.layers("v100")
    assert (graph.gpu_type, graph.batch, graph.is_chain) == ("v100", ROWS, True)
    assert graph.state_factor == found.model().state_factor == 3  # SGD with momentum
    for layer, segment in zip(graph.layers, found.segments, strict=True):
        assert layer.forward_us == round(segment.forward.median)
        assert layer.backward_us == round(segment.backward.median)
        assert 0 <= (layer.weight_us or 0) <= layer.backward_us
        assert (layer.output_bytes, layer.modules) == (segment.output_bytes, segment.modules)


def test_samples_are_known_where_all_tensors_agree() -> None:
    assert measured(Skipping(), ["last"], torch.ones(1)).batch is None
    loader = [((torch.randn(3, 4), torch.ones(3, 1)), torch.zeros(3, 2))] * 2
    assert jigsaw_opt.profile(Skipping(), lambda: iter(loader), nn.MSELoss(), 1, warm_up=1, repeats=1).batch == 3


def test_a_network_of_the_zoo_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, few = tmp_path / "layers.json", ["--repeats", "1", "--warm-up", "1", "--batch", "2"]
    assert main(["profile", "mlp", *few, "--to", "layers", "-o", str(path)]) == 0
    graph = read_layers(path.read_bytes())
    assert graph.batch == 2 and all(layer.weight_us is not None for layer in graph.layers)
    assert all(layer.output_bytes for layer in graph.layers[:-1])
    assert main(["partition", str(path), "--machines", "2", "--bandwidth", "1000000", "--no-replication"]) == 0
    capsys.readouterr()
    assert main(["profile", "mlp", "--to", "layers"]) == 2
    assert "give -o FILE" in capsys.readouterr().err
