"""Task-graph jobs: jobs that state their own operations, such as a pipeline (specification: task-graph-jobs)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.problem.rules.part import CheckedPart

Barrier = Literal["none", "slot", "job"]


@dataclass(frozen=True, slots=True)
class Slot(CheckedPart, definition="slot"):
    """A part of a job that stays on one GPU for the whole horizon, and the memory that it takes there all the time."""

    name: str
    memory: int = 0


@dataclass(frozen=True, slots=True)
class TaskGraphBlock(CheckedPart, definition="block"):
    """A block that runs on the GPU of its slot, or on the GPUs of several slots at once.

    Parameters
    ----------
    name
        Its name, which no other block or transfer of the task graph has.
    slots
        Names of the slots that it takes part in, each once.
    duration_us
        Microseconds by GPU type; on several types at once it takes as long as on the slowest.
    power_w
        Watts that each of its GPUs draws while it runs, by GPU type; 0 on types that are not named.
    """

    name: str
    slots: tuple[str, ...]
    duration_us: Mapping[str, int]
    power_w: Mapping[str, int] | None = None

    def keyed(self) -> dict[str, Any]:
        """Return it as documents have it: one slot has a key of its own."""
        alone = isinstance(self.slots, tuple) and len(self.slots) == 1
        slots = {"slot": self.slots[0]} if alone else {"slots": self.slots}
        power_w = {} if self.power_w is None else {"power_w": self.power_w}
        return {"name": self.name, **slots, "duration_us": self.duration_us, **power_w}


@dataclass(frozen=True, slots=True)
class TaskGraphTransfer(CheckedPart, definition="transfer"):
    """A transfer, either from one slot to another or among several.

    Parameters
    ----------
    name
        Its name, which no other block or transfer of the task graph has.
    bytes
        Its size.
    source, target
        The slots that it goes from and to; None where it is among several.
    among
        The slots that all send and all receive; empty where it goes from one to another.
    """

    name: str
    bytes: int
    source: str | None = None
    target: str | None = None
    among: tuple[str, ...] = ()

    def keyed(self) -> dict[str, Any]:
        """Return it as documents have it."""
        ends = {"among": self.among or None, "from": self.source, "to": self.target}
        return {"name": self.name, "bytes": self.bytes, **{key: end for key, end in ends.items() if end is not None}}


@dataclass(frozen=True, slots=True)
class Edge(CheckedPart, definition="edge"):
    """`after` of iteration ``i + lag`` starts no earlier than `before` of iteration ``i`` ends."""

    before: str
    after: str
    lag: int = 0

    def keyed(self) -> list[Any]:
        """Return it as the list that documents have in its place."""
        return [self.before, self.after, self.lag]


@dataclass(frozen=True, slots=True)
class MemoryInterval(CheckedPart, definition="hold"):
    """Bytes held on the GPU of a slot, in every iteration from the start of one block to the end of another.

    Parameters
    ----------
    start, end
        The blocks, which may be the same.
    bytes
        Number of bytes.
    slot
        The slot, where either block has several; None elsewhere.
    """

    start: str
    end: str
    bytes: int
    slot: str | None = None

    def keyed(self) -> dict[str, Any]:
        """Return it as documents have it."""
        slot = {} if self.slot is None else {"slot": self.slot}
        return {"from": self.start, "to": self.end, "bytes": self.bytes, **slot}


@dataclass(frozen=True, slots=True)
class PipelineFamily(CheckedPart, definition="family"):
    """The family of pipelines whose iterations end with a flush.

    Pass ``F3.0`` is the forward pass of micro-batch 3 through stage 0, and ``B3.0`` its backward pass.

    `stages`: the slot of each stage, first to last; several stages may share one. `micro_batches`: how many there are
    in an iteration. `split`: whether a pass of its own, as ``W3.0``, makes the gradient of the weights.
    """

    stages: tuple[str, ...]
    micro_batches: int
    split: bool = False


@dataclass(frozen=True, slots=True)
class AsynchronousFamily(CheckedPart, definition="family"):
    """The family of pipelines whose minibatches follow one another without a flush, as PipeDream's.

    An iteration has as many minibatches as it takes for all copies to have had equally many.

    `replicas`: the slots of the copies of each stage, which take minibatches in turn. `in_flight`: how many minibatches
    are under way at most.
    """

    replicas: tuple[tuple[str, ...], ...]
    in_flight: int


@dataclass(frozen=True, slots=True)
class BurstFamily(CheckedPart, definition="family"):
    """The family of bursts: layers one after the other, forward and back, each on the first slots.

    `gpus_per_layer`: how many slots each layer is on.
    """

    gpus_per_layer: tuple[int, ...]


Family = PipelineFamily | AsynchronousFamily | BurstFamily


@dataclass(frozen=True, slots=True)
class TaskGraph(CheckedPart, definition="shape"):
    """The slots, operations and edges of one iteration of a task-graph job.

    Parameters
    ----------
    slots, blocks, transfers
        Its slots and operations, in the order of the document, which plans follow.
    edges
        What waits for what. That every operation waits for itself in the iteration before goes without saying.
    barrier
        What separates iterations besides: ``none``; ``slot``, the blocks of each slot; or ``job``, all operations.
    holds
        Memory beside that of the slots.
    family
        What it is known to be, such as a pipeline, so that it can be run; None where nothing is known.
    """

    slots: tuple[Slot, ...]
    blocks: tuple[TaskGraphBlock, ...]
    transfers: tuple[TaskGraphTransfer, ...] = ()
    edges: tuple[Edge, ...] = ()
    barrier: Barrier = "none"
    holds: tuple[MemoryInterval, ...] = ()
    family: Family | None = None

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of its operations, blocks first."""
        return (*(block.name for block in self.blocks), *(transfer.name for transfer in self.transfers))


@dataclass(frozen=True, slots=True)
class TaskGraphJob(CheckedPart, definition="job"):
    """A job that states its own operations.

    Parameters
    ----------
    name, shape
        Its name, and its operations.
    iterations
        Number of iterations ``n``.
    release_us
        No operation starts earlier.
    weight
        Its weight in `weighted_completion`.
    deadline_us
        It ends no later; None for no deadline, as on the cyclic horizon.
    pace_us
        Cycle-time limit on the cyclic horizon: an iteration takes no more microseconds on average; None for none.
    route_policy
        Which policy of the cluster its routes keep; None for none.
    executor
        Description from which the executor builds the stages of a pipeline; solvers ignore it.
    restart_us, licences
        As for other jobs.
    """

    name: str
    shape: TaskGraph
    iterations: int
    release_us: int = 0
    weight: int = 1
    deadline_us: int | None = None
    pace_us: int | None = None
    route_policy: str | None = None
    executor: Mapping[str, Any] | None = None
    restart_us: int | None = None
    licences: tuple[str, ...] | None = None

    model: ClassVar[None] = None
    depth: ClassVar[Depth] = FullDepth()
    """All its operations run in every iteration."""

    @property
    def workers(self) -> int:
        """Number of its slots, each of which takes a GPU."""
        return len(self.shape.slots)

    @property
    def blocks(self) -> int:
        """Number of blocks of an iteration."""
        return len(self.shape.blocks)

    def block_slots(self) -> Iterator[tuple[int, ...]]:
        """Yield for each block of an iteration the numbers of its slots."""
        number = {slot.name: k for k, slot in enumerate(self.shape.slots)}
        return (tuple(number[slot] for slot in block.slots) for block in self.shape.blocks)
