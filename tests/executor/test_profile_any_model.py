"""Profiles of models of any kind: which segments they have, that everything is put back, and clear refusals."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.refusals import misuse

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from partial_networks import CASES, Case, Shared, SkipCnn, built  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import jigsaw_opt  # noqa: E402
from jigsaw_opt.executor.devices import Spread  # noqa: E402
from jigsaw_opt.executor.models.leveled_model import saved_by_segment  # noqa: E402
from jigsaw_opt.executor.profiling import rounds, segment_times, trainee  # noqa: E402
from jigsaw_opt.executor.profiling.results import is_wide  # noqa: E402
from jigsaw_opt.executor.profiling.segment_times import _durations  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:times of blocks")
FEW = {"warm_up": 1, "repeats": 2}
LIKE_A_LOOP = ("skips", "unet", "tied", "tied by function", "batch norm", "shared", "frozen", "vit", "checkpointing")


def case_profile(case: Case, model: nn.Module, **options: Any) -> Any:
    inputs = case.draw(torch.Generator().manual_seed(0))
    return jigsaw_opt.profile(
        model, (inputs, torch.zeros(0)), lambda outputs, _: case.loss(outputs), case.cuts, **FEW, **options
    )


@pytest.mark.parametrize("name", [*LIKE_A_LOOP, "checkpointed by function", "dropout", "sometimes"])
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


class Named(nn.Module):
    """Takes a dictionary by name, and makes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.head(self.dense(self.table(ids)).tanh())
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def test_inputs_by_name_and_by_position() -> None:
    ids = torch.randint(9, (2, 4))
    by_name = jigsaw_opt.profile(Named(), {"ids": ids, "labels": ids}, cuts=["dense", "head"], **FEW)
    assert [segment.parameter_bytes for segment in by_name.segments] == [4 * 72, 4 * 72, 4 * 81]

    def loss(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs["logits"].flatten(0, 1), targets.flatten())

    for inputs in ({"ids": ids}, (ids,), [ids], ids):
        found = jigsaw_opt.profile(Named(), (inputs, ids), loss, 1, gpu_type="card", **FEW)
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


def test_a_step_is_one_of_all_parameters_at_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SkipCnn()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    without: list[int] = []
    step = optimiser.step

    def counting(*arguments: Any) -> Any:
        without.append(sum(p.grad is None for p in model.parameters()))
        return step(*arguments)

    monkeypatch.setattr(optimiser, "step", counting)
    batch = (torch.randn(2, 3, 8, 8), torch.randn(2, 5))
    jigsaw_opt.profile(model, batch, nn.MSELoss(), ["middle", "late"], optimiser=optimiser, **FEW)
    assert len(without) >= 3 * 3 + 1 and set(without) == {0}


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


def test_a_pass_of_inputs_gradients_asks_for_no_weights_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    class Spied(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            asked.append({name for name, is_asked in zip("xw", ctx.needs_input_grad, strict=True) if is_asked})
            return gradients[0] @ weight.T, x.T @ gradients[0]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6) / 6)

        def forward(self, x: Tensor) -> Tensor:
            return Spied.apply(x, self.weight)

    grad = torch.autograd.grad
    passes: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        before = len(asked)
        found = grad(*arguments, **options)
        passes.append(len(asked) - before)
        return found

    monkeypatch.setattr(torch.autograd, "grad", counted)
    model = nn.Sequential(Layer(), Layer(), Layer())
    jigsaw_opt.profile(model, (torch.randn(4, 6), torch.randn(4, 6)), nn.MSELoss(), ["1", "2"], **FEW)
    # The gradients pass the second and the third layer, and end at the output of the first.
    assert passes and set(passes) == {2}


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
