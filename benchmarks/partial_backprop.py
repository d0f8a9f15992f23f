"""What `PartialBackprop` costs over `DistributedDataParallel`, and what its levels save: two processes by default.

Each round runs a step of every way by turns, so that all meet the same machine. A step is the forward pass, the
backward pass with its exchange, and SGD; at a level below full depth all workers go to it. Saved bytes are those of
the tensors that the forward pass keeps for the backward pass, parameters left out.

A second table compares what a level takes of a block at full depth, in the wrapper and in the profile of the same
model: forward pass, backward pass and step of one worker, in the time of its thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from common import print_table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from jigsaw_opt import profile
from jigsaw_opt.executor.device_times import wall_us, work_us
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.processes import run_group


def dense() -> tuple[nn.Module, list[str], Tensor]:
    layers = [part for _ in range(8) for part in (nn.Linear(512, 512), nn.GELU())]
    return nn.Sequential(*layers), ["4", "8", "12"], torch.randn(256, 512)


def convolutions() -> tuple[nn.Module, list[str], Tensor]:
    wide = [part for _ in range(8) for part in (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *wide), ["7", "13", "19"], torch.randn(16, 3, 24, 24)


def encoder() -> tuple[nn.Module, list[str], Tensor]:
    layers = [nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True) for _ in range(8)]
    return nn.Sequential(*layers), ["2", "4", "6"], torch.randn(8, 64, 128)


MODELS = {"dense, width 512": dense, "convolutions, 32 channels": convolutions, "encoder, width 128": encoder}


def built(name: str, wrap: Callable[[nn.Module], nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = wrap(MODELS[name]()[0])
    return model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)


def step(model: nn.Module, optimiser: torch.optim.Optimizer, inputs: Tensor) -> float:
    """Microseconds of a step that all processes begin together."""
    dist.barrier()
    begin_us = wall_us(inputs.device)
    model(inputs).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
    return wall_us(inputs.device) - begin_us


def saved_bytes(model: nn.Module, inputs: Tensor) -> int:
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        held.append(tensor)  # so that no two of them share an address
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(inputs).square().mean()
    loss.backward()
    return sum(kept.values())


def measured(rounds: int) -> dict[str, Any]:
    """By model, the times of DDP and of levels 1 to 4, and what levels save."""
    found: dict[str, Any] = {}
    for name, model in MODELS.items():
        _, cuts, inputs = model()
        ways: list[Callable[[nn.Module], nn.Module]] = [DistributedDataParallel]
        ways += [partial(PartialBackprop, cuts=cuts, levels=partial(same, level)) for level in range(1, 5)]
        trained = [built(name, way) for way in ways]
        for each in trained:
            step(*each, inputs)
            step(*each, inputs)
        times: list[list[float]] = [[] for _ in trained]
        for turn in range(rounds):
            for at in sorted(range(len(trained)), key=lambda at: (at + turn) % len(trained)):
                times[at].append(step(*trained[at], inputs))
        found[name] = times, [saved_bytes(each, inputs) for each, _ in trained]
    return found


def mean_square(outputs: Tensor, _: object) -> Tensor:
    return outputs.square().mean()


def block(model: nn.Module, optimiser: torch.optim.Optimizer, inputs: Tensor) -> float:
    """Microseconds of a block of a worker alone; it steps every parameter, as where others reach it."""
    begin_us = work_us(inputs.device)
    mean_square(model(inputs), None).backward()
    middle_us = work_us(inputs.device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    later_us = work_us(inputs.device)
    optimiser.step()
    end_us = work_us(inputs.device)
    optimiser.zero_grad()
    return end_us - later_us + middle_us - begin_us


def shares(name: str, rounds: int) -> tuple[list[float], list[float]]:
    """By level, the share of a block at full depth, as the wrapper takes it and as the profile says."""
    _, cuts, inputs = MODELS[name]()
    plain, optimiser = built(name, nn.Sequential)
    ways = [partial(PartialBackprop, cuts=cuts, levels=partial(same, level + 1)) for level in range(len(cuts) + 1)]
    trained = [built(name, way) for way in ways]
    times: list[list[float]] = [[] for _ in trained]
    for turn in range(rounds + 2):
        for own, each in zip(times, trained, strict=True):
            us = block(*each, inputs)
            if turn >= 2:
                own.append(us)
    taken = [median(own) for own in times]
    inside = [f"0.{cut}" for cut in cuts]  # of the sequence that stands in place of the wrapper
    found = profile(plain, (inputs, None), mean_square, inside, optimiser=optimiser, repeats=rounds)
    told = [level.block.median for level in found.levels]
    return [us / taken[-1] for us in taken], [us / told[-1] for us in told]


def same(level: int, iteration: int, worker: int) -> int:
    return level


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    found = run_group(measured, arguments.processes, arguments.rounds)[0]
    rows = []
    for name, (times, saved) in found.items():
        ddp, *levels = (median(own) for own in times)
        over = median(ours / theirs - 1 for ours, theirs in zip(times[-1], times[0], strict=True))
        shown = [f"{us / 1e3:.1f} ms, {kept / 1e6:.1f} MB" for us, kept in zip(levels, saved[1:], strict=True)]
        rows.append((name, f"{ddp / 1e3:.1f} ms, {saved[0] / 1e6:.1f} MB", *shown, f"{over:+.1%}"))
    print_table(("model", "DDP", "level 1", "level 2", "level 3", "level 4", "level 4 over DDP"), rows)
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        pairs = list(zip(*shares(name, arguments.rounds), strict=True))[:-1]
        rows.append((name, *(f"{ours:.1%}, {told:.1%}" for ours, told in pairs)))
    print()
    print_table(("of a block: measured, in the profile", "level 1", "level 2", "level 3"), rows)


if __name__ == "__main__":
    main()
