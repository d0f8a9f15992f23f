"""The instance that a burst-parallel plan makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from jigsaw_opt.documents.readers.profiles.burst_costs import LayerOption
from jigsaw_opt.planning.burst.plan import BurstPlan
from jigsaw_opt.planning.pipeline.stages import GPU_TYPE, alone_on_server
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.problem.task_graph import (
    BurstFamily,
    Edge,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)


def burst_instance(plan: BurstPlan, name: str, horizon: Horizon) -> Instance:
    """Return the instance of a plan: a server with a GPU for each that there is, and one task-graph job.

    Operations follow one another as in the planner's costs: forward passes ``F0``, ``F1``, … with activations moved in
    between, then backward passes the other way, each with its synchronisation and the gradients moved on. A layer on
    `g` GPUs takes slots 0 to `g` - 1. Times are rounded to microseconds, and a pass takes at least one. The barrier is
    `job`: an iteration begins once that before has ended (specification: edges-and-barrier).
    """
    options, moved = plan.options, _moved_us(plan)
    slots = tuple(Slot(f"gpu{gpu}") for gpu in range(max(plan.gpus_per_layer)))
    line = _Line([slot.name for slot in slots])
    wider = [max(pair) for pair in pairwise((1, *plan.gpus_per_layer))]
    for at, option in enumerate(options):
        line.delay(f"A{at}", moved[at] / 2, wider[at])
        line.block(f"F{at}", _forward_us(option), option.gpus)
    for at, option in reversed([*enumerate(options)]):
        line.block(f"B{at}", option.gpu_us - _forward_us(option), option.gpus)
        line.ring(f"S{at}", option.sync_us, option.gpus)
        line.delay(f"G{at}", moved[at] / 2, wider[at])
    family = BurstFamily(tuple(plan.gpus_per_layer))
    shape = TaskGraph(slots, tuple(line.blocks), tuple(line.transfers), line.edges, "job", family=family)
    return alone_on_server(name, TaskGraphJob("burst", shape, 1), plan.costs.gpus, 1, horizon)


@dataclass
class _Line:
    """Operations one behind the other, in the order in which they are added."""

    slots: list[str]
    blocks: list[TaskGraphBlock] = field(default_factory=list)
    transfers: list[TaskGraphTransfer] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Each waits for the one before."""
        return tuple(Edge(one, other) for one, other in pairwise(self.names))

    def block(self, name: str, us: float, gpus: int) -> None:
        """Add a pass on the first GPUs."""
        self.blocks.append(TaskGraphBlock(name, tuple(self.slots[:gpus]), {GPU_TYPE: max(1, round(us))}))
        self.names.append(name)

    def delay(self, name: str, us: float, gpus: int) -> None:
        """Add moving something among GPUs; where there is but one, it is that one's work."""
        if not round(us):
            return
        if gpus == 1:
            self.block(name, us, gpus)
        else:
            self._transfer(TaskGraphTransfer(name, round(us), self.slots[0], self.slots[1]))

    def ring(self, name: str, us: float, gpus: int) -> None:
        """Add synchronisation: bytes that take a ring so long (specification: durations-of-task-graph-operations)."""
        if gpus == 1:
            self.delay(name, us, gpus)
        elif size := round(us * gpus / (2 * (gpus - 1))):
            self._transfer(TaskGraphTransfer(name, size, among=tuple(self.slots[:gpus])))

    def _transfer(self, transfer: TaskGraphTransfer) -> None:
        self.transfers.append(transfer)
        self.names.append(transfer.name)


def _forward_us(option: LayerOption) -> float:
    """Return the part of `gpu_us` that the forward pass takes, as measured; half where nothing is measured."""
    both = option.forward_us + option.backward_us
    return option.gpu_us * (option.forward_us / both if both else 0.5)


def _moved_us(plan: BurstPlan) -> list[float]:
    """Return for each layer the microseconds of moving its input there and its gradient back."""
    steps = zip(plan.costs.layers[1:], pairwise(plan.choice), strict=True)
    return [0.0, *(layer.transfer_us[before][own] for layer, (before, own) in steps)]
