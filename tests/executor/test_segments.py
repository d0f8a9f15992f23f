"""Partial backpropagation: the suffix's gradients are those of the full pass, and the prefix costs nothing."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from jigsaw_opt.executor.models.building import Replica, build_network, even_segments, replica  # noqa: E402
from jigsaw_opt.executor.models.leveled_model import saved_bytes  # noqa: E402
from jigsaw_opt.problem.model import Model, Segment  # noqa: E402

NETWORKS: dict[str, tuple[str, dict[str, Any], int]] = {
    "mlp": ("mlp", {"hidden": [32, 24, 16]}, 4),
    "vgg": ("vgg", {"image": 16}, 3),
    "resnet": ("resnet", {"image": 32}, 4),
    "bert": ("bert", {}, 4),
    "gpt": ("gpt", {}, 4),
}


@pytest.fixture(params=NETWORKS)
def tiny(request: pytest.FixtureRequest) -> Replica:
    zoo, arguments, parts = NETWORKS[request.param]
    network = build_network(zoo, arguments, seed=1)
    return replica(network, even_segments(network, parts), batch_size=4)


def gradients(tiny: Replica, level: int) -> list[list[torch.Tensor | None]]:
    tiny.model.zero_grad()
    tiny.model.backpropagate(tiny.batch(0, 0, 0), level)
    return [[p.grad for p in own] for own in tiny.model.own_parameters()]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_gradients_of_the_suffix_equal_those_of_the_full_pass_bit_for_bit(tiny: Replica, training: bool) -> None:
    tiny.model.train(training)
    full = gradients(tiny, tiny.model.depth)
    assert all(gradient is not None for own in full for gradient in own)
    for level in range(1, tiny.model.depth + 1):
        found, cut = gradients(tiny, level), tiny.model.cut(level)
        assert all(gradient is None for own in found[:cut] for gradient in own)
        for own, own_full in zip(found[cut:], full[cut:], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(own, own_full, strict=True))


def test_loss_and_running_statistics_do_not_depend_on_the_level(tiny: Replica) -> None:
    batch = tiny.batch(0, 0, 0)
    before = {name: t.clone() for name, t in tiny.model.state_dict().items()}
    outcomes = []
    for level in (1, tiny.model.depth):
        tiny.model.load_state_dict(before)
        loss = tiny.model.backpropagate(batch, level)
        outcomes.append((loss, {name: buffer.clone() for name, buffer in tiny.model.named_buffers()}))
    (shallow, shallow_buffers), (full, full_buffers) = outcomes
    assert torch.equal(shallow, full)
    assert all(torch.equal(shallow_buffers[name], full_buffers[name]) for name in full_buffers)


def test_a_level_saves_what_its_segments_save_and_nothing_of_the_prefix(tiny: Replica) -> None:
    batch, depth = tiny.batch(0, 0, 0), tiny.model.depth
    full, nearly = saved_bytes(tiny.model, batch, depth), saved_bytes(tiny.model, batch, depth - 1)
    assert all(full)
    totals = []
    for level in range(1, depth + 1):
        saved, cut = saved_bytes(tiny.model, batch, level), tiny.model.cut(level)
        assert not any(saved[:cut])
        # The first operation of the suffix has no gradient to hand on, so it may save less, never more.
        assert sum(full[cut + 1 :]) < sum(saved) <= sum(full[cut:])
        # What the output keeps for the gradient of a shared table, it keeps only if the table gets one.
        assert saved[cut + 1 :] == (full if level == depth else nearly)[cut + 1 :]
        totals.append(sum(saved))
    assert totals == sorted(set(totals))


def test_the_backward_pass_runs_fewer_operations_at_a_shallower_level(tiny: Replica) -> None:
    counts = []
    for level in range(1, tiny.model.depth + 1):
        loss = tiny.model.partial_loss(tiny.batch(0, 0, 0), level)
        counts.append(_nodes(loss.grad_fn))
    assert counts == sorted(set(counts))


def _nodes(root: Any) -> int:
    seen, todo = set(), [root]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(following for following, _ in node.next_functions)
    return len(seen)


def test_a_shared_table_gets_its_gradient_only_from_a_pass_that_reaches_its_owner() -> None:
    network = build_network("gpt", {})
    tiny = replica(network, even_segments(network, 4), batch_size=2)
    table = network.units["embeddings"].tokens.weight
    assert [any(p is table for p in own) for own in tiny.model.own_parameters()] == [True, False, False, False]
    assert any(p is table for p in tiny.model.segments[3].parameters())
    tiny.model.backpropagate(tiny.batch(0, 0, 0), tiny.model.depth - 1)
    assert table.grad is None and table.requires_grad
    tiny.model.backpropagate(tiny.batch(0, 0, 0), tiny.model.depth)
    assert table.grad.abs().sum() > 0


@pytest.mark.parametrize("levels", [(1, 2, 3, 4), (1, 4), (4,), (2, 3, 4)])
def test_buckets_are_those_of_the_instance(levels: tuple[int, ...]) -> None:
    network = build_network("gpt", {"layers": 2})
    tiny = replica(network, range(5), 2, levels)
    sizes = [sum(p.nbytes for p in own) for own in tiny.model.own_parameters()]
    stated = Model(tuple(Segment(str(i), {}, {}, size, 0) for i, size in enumerate(sizes)), levels)
    assert tuple(sum(p.nbytes for p in own) for own in tiny.model.bucket_parameters()) == stated.bucket_bytes()
    assert sum(sizes) == sum(p.nbytes for p in tiny.model.parameters())
    for level, kept in enumerate(levels, 1):
        found = gradients(tiny, level)
        assert [all(g is not None for g in own) for own in found] == [False] * (4 - kept) + [True] * kept
