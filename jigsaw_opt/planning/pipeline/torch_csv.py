"""A pipeline's plan as the file of schedules that PyTorch's `torch.distributed.pipelining` reads.

A row is a rank, one for each slot of the pipeline, and a cell an action: stage, kind and micro-batch, as in ``2F0``.
Kinds are ``F``, ``B`` for a whole backward pass, and ``I`` and ``W`` where it is split. PyTorch does nothing in ``I``
of stage 0, and the whole backward pass in its ``W``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal

from jigsaw_opt.planning.burst.schedule import BurstSchedule
from jigsaw_opt.planning.pipeline.orders import Orders, Pass, PipelineLayout
from jigsaw_opt.planning.pipeline.stated import (
    flow_of,
    only_pipeline,
    orders_of,
    pipeline_of,
    recomputed_stages,
)
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Block, Execution, Plan

CsvFormat = Literal["compute_only", "compute_comms"]
KNOWN_TORCH = "2.13"
"""Version of PyTorch whose reader and runtime these files were tried with; both are private to it."""


@dataclass(frozen=True, slots=True)
class TorchSchedule:
    """The actions of each rank of a pipeline, in the words of PyTorch.

    `job`: number of the pipeline among the jobs of its instance. `planned`: for each action, the name of the block that
    it carries out; none of actions that send and receive. `recomputed`: stages that compute their activations again
    before their backward pass, which the file has no word for. `iterations`: the same for each iteration of a plan,
    which differ in orders alone; empty where all are alike, as of an asynchronous pipeline.
    """

    job: int
    layout: PipelineLayout
    ranks: tuple[tuple[str, ...], ...]
    planned: dict[str, str]
    recomputed: tuple[int, ...] = ()
    iterations: tuple[TorchSchedule, ...] = ()

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.layout.stages

    @property
    def processes(self) -> int:
        """Number of processes."""
        return self.layout.gpus

    @property
    def is_split(self) -> bool:
        """Whether backward passes are."""
        return self.layout.split

    def stages_of(self, rank: int) -> list[int]:
        """Return the stages of a process."""
        return [stage for stage, gpu in enumerate(self.layout.gpu_of) if gpu == rank]

    def planned_in(self, iteration: int) -> Mapping[str, str]:
        """Return by action the name of the block that it carries out in an iteration, counted over all passes."""
        return self._in(iteration).planned

    def actions_of(self, rank: int, iteration: int) -> list[str]:
        """Return the passes of a process in an iteration, counted over all passes."""
        own = self._in(iteration)
        return [action for action in own.ranks[rank] if action in own.planned]

    def _in(self, iteration: int) -> TorchSchedule:
        return self.iterations[iteration % len(self.iterations)] if self.iterations else self

    @property
    def groups(self) -> tuple[int, ...]:
        """All of its processes exchange."""
        return (self.processes,)

    @property
    def csv(self) -> str:
        """The file: no header, a row a rank."""
        return "".join(",".join(actions) + "\n" for actions in self.ranks)


StageSchedule = TorchSchedule | BurstSchedule
"""The actions of the processes of a job whose model is in stages."""


def torch_schedule(instance: Instance, plan: Plan, form: CsvFormat = "compute_only") -> TorchSchedule:
    """Return the actions of a pipeline's ranks, in the order of a plan.

    PyTorch looks losses up by their number in the order of the last stage's forward passes, so micro-batches, which are
    all alike, are numbered in this order.
    """
    pipeline_of(instance, plan)
    return _schedule(instance, plan, form, 0)


def _schedule(instance: Instance, plan: Plan, form: CsvFormat, iteration: int) -> TorchSchedule:
    """Return the actions of a pipeline's ranks in one iteration."""
    job, layout = only_pipeline(instance)
    orders = orders_of(instance, plan, job, iteration)
    # The last stage is on one GPU, so that its order is the order of that GPU.
    last = [
        pass_.micro_batch
        for order in orders
        for pass_ in order
        if (pass_.kind, pass_.stage) == ("F", layout.stages - 1)
    ]
    number = {batch: number for number, batch in enumerate(last)}
    kinds = {"F": "F", "B": "I" if layout.split else "B", "W": "W"}
    actions = {
        pass_: f"{pass_.stage}{kinds[pass_.kind]}{number[pass_.micro_batch]}" for order in orders for pass_ in order
    }
    ranks = [[actions[pass_] for pass_ in order] for order in orders]
    if form == "compute_comms":
        ranks = _with_messages(_times(instance, plan, job, iteration), layout, orders, actions, number)
    planned = {actions[action]: action.name for action in actions}
    return TorchSchedule(job, layout, tuple(map(tuple, ranks)), planned, recomputed_stages(instance.task_graph_of[job]))


def torch_schedules(instance: Instance, plan: Plan) -> TorchSchedule:
    """Return the actions of a pipeline's ranks for each iteration, with sends and receives.

    Notes
    -----
    It raises the errors of `torch_schedule`.
    """
    job, _ = only_pipeline(instance)
    numbers = range(instance.jobs[job].iterations)
    every = tuple(_schedule(instance, plan, "compute_comms", iteration) for iteration in numbers)
    return replace(every[0], iterations=every)


def flow_schedule(instance: Instance) -> TorchSchedule | None:
    """Return names of actions of an asynchronous pipeline that is alone; None where the instance has none.

    A rank has its stage's two passes of each minibatch. PyTorch's runtime does not carry it out.
    """
    graphs = instance.task_graph_of
    layout = flow_of(graphs[0]) if graphs and len(instance.jobs) == 1 else None
    if layout is None:
        return None
    planned = {f"{stage}{kind}0": f"{kind}0.{stage}" for kind in "FB" for stage in range(layout.stages)}
    return TorchSchedule(0, layout, tuple((f"{stage}F0", f"{stage}B0") for stage in range(layout.stages)), planned)


def _times(instance: Instance, plan: Plan, job: int, iteration: int = 0) -> dict[str, Block | Execution]:
    """Return when each block of a pipeline runs in an iteration."""
    names = (block.name for block in instance.task_graph_of[job].blocks)
    return dict(zip(names, plan.jobs[job].iterations[iteration].blocks, strict=True))


def _with_messages(
    times: Mapping[str, Block | Execution],
    layout: PipelineLayout,
    orders: Orders,
    actions: Mapping[Pass, str],
    number: Mapping[int, int],
) -> list[list[str]]:
    """Return for each rank its actions with sends and receives, and where the gradients of each stage are complete.

    All are put in one row by time, a message at the end of the pass that it is the result of and before passes that
    begin then. Each rank has its part of the row, so whatever it waits for stands before it there, and nothing
    deadlocks, even where a send lasts until it is received.
    """
    row: list[tuple[int, int, list[tuple[int, str]]]] = []
    for rank, order in enumerate(orders):
        # Later entries replace earlier ones, which leaves the last backward pass of each stage.
        final = {pass_.stage: pass_ for pass_ in order if pass_.kind != "F"}
        for pass_ in order:
            at, batch = times[pass_.name], number[pass_.micro_batch]
            row.append((at.start_us, 1, [(rank, actions[pass_])]))
            # The gradient of the weights goes nowhere: no stage has so high a number.
            other = pass_.stage + {"F": 1, "B": -1, "W": layout.stages}[pass_.kind]
            if 0 <= other < layout.stages and layout.gpu_of[other] != rank:
                sent, received = f"{pass_.stage}SEND_{pass_.kind}{batch}", f"{other}RECV_{pass_.kind}{batch}"
                row.append((at.end_us, 0, [(rank, sent), (layout.gpu_of[other], received)]))
            if pass_ == final[pass_.stage]:
                row.append((at.end_us, 0, [(rank, f"{pass_.stage}REDUCE_GRAD")]))
    ranks: list[list[str]] = [[] for _ in orders]
    # The 0 of messages puts them before the passes that begin at the same moment.
    for _, _, own in sorted(row, key=itemgetter(0, 1)):
        for rank, name in own:
            ranks[rank].append(name)
    return ranks
