"""Pipelines on PyTorch's own runtime: gradients and the order of passes, beside the model without a pipeline.

``python benchmarks/pipelines_run.py`` carries named schedules and searched plans with random costs out, on 2 to 4
processes, and compares gradients with those of the whole model, and what PyTorch logs with the plan.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from jigsaw_opt.executor.hosts.host import HostSetting
from jigsaw_opt.executor.hosts.kinds import build_host
from jigsaw_opt.executor.hosts.stages import StagesHost
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.randomness import draw_number, own_draws
from jigsaw_opt.executor.replay.rank_process import stage_groups
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import Orders, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.planning.pipeline.stated import orders_of
from jigsaw_opt.planning.pipeline.torch_csv import torch_schedule, torch_schedules
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.solvers.options import Options

NAMED = (
    ("gpipe", False),
    ("1f1b", False),
    ("1f1b", True),
    ("interleaved", False),
    ("interleaved", True),
    ("zb-h1", True),
    ("zb-h2", True),
    ("v-half", True),
)
"""Eight schedules, with split backward passes or not."""


def stages(rank: int, world: int, device: torch.device, count: int, width: int, samples: int) -> dict[str, Any]:
    """Stages of different layers, with a loss and two batches."""
    generator = torch.Generator().manual_seed(count)
    made: list[nn.Module] = []
    for stage in range(count):
        made.append(nn.Sequential(nn.Linear(width, width + stage), nn.Tanh(), nn.Linear(width + stage, width)))
    data = [tuple(torch.randn(samples, width, generator=generator) for _ in range(2)) for _ in range(2)]
    return {"model": made, "loader": data, "loss": nn.functional.mse_loss}


@dataclass(frozen=True)
class Case:
    """A plan of a pipeline, and what stands beside it in the table."""

    name: str
    instance: Instance
    plan: Plan

    @property
    def layout(self) -> PipelineLayout:
        """Its layout."""
        return torch_schedule(self.instance, self.plan).layout

    def request(self, **settings: Any) -> ReplayRequest:
        """What the executor is asked to do."""
        return ReplayRequest(instance=self.instance, plan=self.plan, **settings)

    def entry(self, function: str, width: int, samples: int) -> dict[str, Any]:
        """How its stages are built."""
        arguments = {"count": self.layout.stages, "width": width, "samples": samples}
        return {"train": f"{__name__}:{function}", "arguments": arguments, "cuts": []}


def layout_for(name: str, gpus: int, batches: int, split: bool) -> PipelineLayout:
    """Stages of a named schedule on GPUs."""
    there = tuple(range(gpus))
    gpu_of = {"interleaved": there * 2, "v-half": there + there[::-1]}.get(name, there)
    return PipelineLayout(gpu_of, batches, split)


def named_cases(gpus: int, batches: int) -> Iterator[Case]:
    """Each named schedule, with equal costs."""
    for name, split in NAMED:
        layout = layout_for(name, gpus, batches, split)
        unit = (100,) * layout.stages
        problem = PipelineProblem(PipelineCosts(unit, unit, unit if split else (), unit[1:]), layout)
        yield case_of(f"{name}, {'split' if split else 'combined'}", problem, ORDERS[name](layout))


def case_of(name: str, problem: PipelineProblem, orders: Orders) -> Case:
    """A plan of one iteration in given orders."""
    found = schedule_of(problem, orders, "pipeline", name).finite
    assert found.plan is not None, "orders have a plan"
    return Case(name, found.instance, found.plan)


def searched_case(seed: int, gpus: int) -> Case:
    """What a short search finds for random costs, layouts and numbers of micro-batches."""
    draw, there = Random(seed), tuple(range(gpus))
    layout = PipelineLayout(
        draw.choice([there, there * 2, there + there[::-1]]), draw.randint(2, 8), draw.random() < 0.7
    )

    def costs(count: int) -> tuple[int, ...]:
        return tuple(draw.randint(20, 300) for _ in range(count))

    count = layout.stages
    weights = costs(count) if layout.split else ()
    problem = PipelineProblem(PipelineCosts(costs(count), costs(count), weights, costs(count - 1)), layout)
    options = Options(work_limit=0.2, threads=1, seed=seed)
    instance, result = search_schedule(problem, f"searched {seed}", "finite", options)
    assert result.plan is not None, "there is a plan without a limit of memory"
    return case_of(f"searched {seed}", problem, orders_of(instance, result.plan))


class _Actions(logging.Handler):
    """What PyTorch logs of its actions."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an action."""
        if "running time_step" in record.msg and isinstance(record.args, tuple):
            self.seen.append(str(record.args[1]))


@dataclass(frozen=True)
class Found:
    """Of a rank: largest difference of its gradients, the largest of them, and the actions as PyTorch logs them."""

    difference: float
    largest: float
    actions: tuple[str, ...]


def carry_out(cases: Sequence[tuple[ReplayRequest, Mapping[str, Any]]]) -> list[Found]:
    """Take one step of each pipeline, in a process of a group; compare gradients with those of the whole model."""
    return [_one_step(request, entry) for request, entry in cases]


def _one_step(request: ReplayRequest, entry: Mapping[str, Any]) -> Found:
    schedule = torch_schedules(request.instance, request.plan)
    clock, run = ReplayClock(dist.new_group(backend="gloo")), StagedRun(schedule, entry)
    setting = HostSetting(request, torch.device("cpu"), clock, None, run, stage_groups(schedule))
    process = build_host(setting, schedule.job)
    assert isinstance(process, StagesHost)
    logger, actions = logging.getLogger("torch.distributed.pipelining.schedules"), _Actions()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.handlers[:] = [actions]
    process.run_passes()
    logger.handlers[:] = []
    function: Any = globals()[entry["train"].partition(":")[2]]
    with own_draws(draw_number(request.seed, 0, 0)):  # as the processes do
        made = function(rank=0, world=1, device=torch.device("cpu"), **entry["arguments"])
    model = nn.Sequential(*made["model"])
    inputs, targets = made["loader"][0]
    made["loss"](model(inputs), targets).backward()
    differences, sizes = [0.0], [0.0]
    for stage, module in process.modules.items():
        for own, other in zip(module.parameters(), model[stage].parameters(), strict=True):
            assert own.grad is not None and other.grad is not None, "every parameter has a gradient"
            differences.append(float((own.grad - other.grad).abs().max()))
            sizes.append(float(other.grad.abs().max()))
    return Found(max(differences), max(sizes), tuple(actions.seen))


def is_as_planned(case: Case, found: Sequence[Found]) -> bool:
    """Whether PyTorch's log has the actions of the file on each rank, in its order."""
    schedule = torch_schedule(case.instance, case.plan, "compute_comms")
    return schedule.ranks == tuple(rank.actions for rank in found)


def on_processes(cases: Sequence[Case]) -> Iterator[tuple[Case, list[Found]]]:
    """Carry out pipelines that have the same number of GPUs, in processes that are started once."""
    asked = [(case.request(), case.entry("stages", 8, 2 * case.layout.micro_batches)) for case in cases]
    by_rank = run_group(carry_out, cases[0].layout.gpus, asked)
    for number, case in enumerate(cases):
        yield case, [found[number] for found in by_rank]


def gradients(searched: int) -> None:
    """Print how far gradients are off, and whether all orders are those of the plans."""
    worst, sizes, ordered, count = 0.0, [], 0, 0
    for gpus in (2, 3, 4):
        cases = list(named_cases(gpus, 2 * gpus)) + [searched_case(seed, gpus) for seed in range(gpus - 2, searched, 3)]
        for case, found in on_processes(cases):
            difference = max(rank.difference for rank in found)
            worst, ordered, count = max(worst, difference), ordered + is_as_planned(case, found), count + 1
            sizes.append(max(rank.largest for rank in found))
            print(f"{gpus} processes  {case.name:26} {difference:.1e}")
    print(f"{count} schedules: largest difference {worst:.1e}, of gradients up to {max(sizes):.1e}")
    print(f"{ordered} in the order of the plan, by PyTorch's log")


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searched", type=int, default=50, metavar="N", help="searched plans (default: 50)")
    gradients(parser.parse_args().searched)


if __name__ == "__main__":
    import pipelines_run  # so that functions have a name that other processes can import

    pipelines_run.main()
