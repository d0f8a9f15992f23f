"""Stages of pipelines for the tests: a small network, and ones that go wrong."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.executor.hosts.flow import FlowHost
from jigsaw_opt.executor.hosts.host import HostSetting
from jigsaw_opt.executor.hosts.kinds import build_host
from jigsaw_opt.executor.hosts.stages import StagesHost
from jigsaw_opt.executor.randomness import draw_number, own_draws
from jigsaw_opt.executor.replay.rank_process import run_rank, stage_groups
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.planning.burst.schedule import burst_schedule
from jigsaw_opt.planning.pipeline.torch_csv import flow_schedule

WIDTH = 8


class Fault(nn.Module):
    """In its forward pass after so many, kills its process, ends it, or raises."""

    def __init__(self, after: int, what: str) -> None:
        super().__init__()
        self.left, self.what = after, what

    def forward(self, inputs: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            if self.what == "exit":
                sys.exit(0)
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a fault on purpose")
        return inputs


def chain(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Three stages and five batches, without anything that is drawn in a pass."""
    made = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)]
    data = [(torch.randn(4, WIDTH), torch.randn(4, WIDTH)) for _ in range(5)]
    return {"model": made, "loader": data, "loss": nn.functional.mse_loss, "optimiser": sgd}


def apart(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """The same with other batches in each process."""
    return chain(rank, world, device) | {"loader": [(torch.full((4, WIDTH), float(rank)), torch.ones(4, WIDTH))]}


def uneven(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Four layers, and a last batch that is smaller."""
    data = [(torch.randn(size, WIDTH), torch.randn(size, WIDTH)) for size in (6, 3)]
    return net(rank, world, device) | {"loader": data}


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """An optimiser with momentum."""
    return torch.optim.SGD(parameters, 0.3, momentum=0.9)


def flow(request: ReplayRequest, entry: dict[str, Any]) -> tuple[dict[str, Tensor], list[int], int]:
    """Weights at the end of an asynchronous pipeline, in a process of it; versions that minibatches saw."""
    schedule = flow_schedule(request.instance)
    assert schedule is not None
    ended: list[FlowHost] = []
    FlowHost.close = lambda host: ended.append(host)  # type: ignore[method-assign]
    run_rank(request, None, StagedRun(schedule, entry))
    [[host], [module]] = ended, ended[0].modules.values()
    return dict(module.state_dict()), host.versions, host.stage.most_versions


def layers(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Five layers, and a batch of twelve."""
    sizes = [(WIDTH, 6), (6, 6), (6, 5), (5, 4), (4, WIDTH)]
    made = [nn.Sequential(nn.Linear(*size), nn.Tanh()) for size in sizes]
    data = [(torch.randn(12, WIDTH), torch.randn(12, WIDTH))]
    return {"model": made, "loader": data, "loss": nn.functional.mse_loss}


def burst(request: ReplayRequest, entry: dict[str, Any]) -> tuple[list[int], float, float]:
    """Layers of a process of a burst, how far their gradients are from the whole model's, and the largest of these."""
    schedule = burst_schedule(request.instance)
    assert schedule is not None
    clock, run = ReplayClock(dist.new_group(backend="gloo")), StagedRun(schedule, entry)
    setting = HostSetting(request, torch.device("cpu"), clock, None, run, stage_groups(schedule))
    process = build_host(setting, schedule.job)
    assert isinstance(process, StagesHost)
    state = process.worker.state()
    process.prepare(1, ())
    process.worker.load(state)
    process.run_passes()
    with own_draws(draw_number(0, 0, 0)):
        made = layers(0, 3, torch.device("cpu"))
    whole, (inputs, targets) = made["model"], made["loader"][0]
    made["loss"](nn.Sequential(*whole)(inputs), targets).backward()
    pairs = [
        (a.grad, b.grad)
        for n, module in process.modules.items()
        for a, b in zip(module.parameters(), whole[n].parameters(), strict=True)
    ]
    return (
        list(process.modules),
        max(float((a - b).abs().max()) for a, b in pairs if a is not None and b is not None),
        min(float(b.abs().max()) for _, b in pairs if b is not None),
    )


def net(
    rank: int, world: int, device: torch.device, fault: str = "", after: int = 0, samples: int = 12
) -> dict[str, Any]:
    """Four layers with dropout, as a `Sequential` that the entry cuts, an optimiser with a state, and shuffled data."""
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH)]
    if fault:
        layers.append(Fault(after, fault))
    model = nn.Sequential(*layers)
    data = [(torch.randn(WIDTH), torch.randn(WIDTH)) for _ in range(3 * samples)]
    loader = torch.utils.data.DataLoader(data, batch_size=samples, shuffle=True)  # type: ignore[arg-type]
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    return {"model": model, "loader": loader, "loss": nn.functional.mse_loss, "optimizer": optimiser}


class Whole(nn.Module):
    """The four layers of `net`, of which three have qualified names."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.first, self.layers = layers[0], nn.ModuleList(layers[1:])

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.first(inputs)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def whole(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """What `net` returns, with the model as one module."""
    made = net(rank, world, device)
    return made | {"model": Whole(list(made["model"]))}


def deep(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Six layers of 64 numbers a sample with dropout, as a `Sequential`, and a batch of sixteen."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1)) for _ in range(6)))
    data = [(torch.randn(16, 64), torch.randn(16, 64)) for _ in range(2)]
    return {"model": model, "loader": data, "loss": nn.functional.mse_loss}


def careless(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """A training whose code sets what holds for the whole process, and draws from the generators that all have."""
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, 10), Careless())
    data = [(torch.randn(4, WIDTH), torch.randn(4, 10))]
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    return {"model": model, "loader": data, "loss": nn.functional.mse_loss, "optimiser": optimiser}


class Careless(nn.Module):
    """Seeds all generators, and does as if nobody else had a default type."""

    def forward(self, inputs: Tensor) -> Tensor:
        assert inputs.dtype == torch.get_default_dtype() == torch.float64
        torch.manual_seed(3)
        return inputs
