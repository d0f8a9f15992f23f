"""The variables of the finite CP-SAT model and the ground that they stand on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.problem.critical import usable_gpus
from jigsaw_opt.problem.pieces import PieceGraph, Pieces
from jigsaw_opt.problem.timetable import Gpu

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Expression = cp_model.LinearExpr | int

__all__ = ["Exchange", "Ground", "JobVariables", "Window", "add_any"]


class Ground:
    """GPUs in one flat list, and which of them each job may use.

    Parameters
    ----------
    pieces
        The instance, cut.
    """

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        servers = pieces.cluster.servers
        self.gpus: tuple[Gpu, ...] = tuple((s, k) for s, server in enumerate(servers) for k in range(server.gpus))
        self.by_server = tuple(tuple(g for g, gpu in enumerate(self.gpus) if gpu[0] == s) for s in range(len(servers)))
        self.index: dict[str, int] = {pieces.cluster.gpu_name(*gpu): g for g, gpu in enumerate(self.gpus)}

    def server(self, gpu: int) -> int:
        """Index of the server of a GPU."""
        return self.gpus[gpu][0]

    def gpu_type(self, gpu: int) -> str:
        """Type of a GPU."""
        return self.pieces.cluster.servers[self.server(gpu)].gpu_type

    def memory(self, gpu: int) -> int:
        """Bytes of memory of a GPU."""
        return self.pieces.cluster.servers[self.server(gpu)].gpu_memory

    def allowed(self, job: PieceGraph) -> tuple[int, ...]:
        """GPUs that may hold a worker of `job`."""
        usable = usable_gpus(self.pieces, job)
        return tuple(g for g in range(len(self.gpus)) if self.server(g) in usable)

    def part(self, gpu: int) -> int:
        """Connected part of the cluster that a GPU is in."""
        return self.pieces.routes.component[self.server(gpu)]


def add_any(model: cp_model.CpModel, literal: cp_model.IntVar, literals: Sequence[cp_model.IntVar]) -> None:
    """State that `literal` holds exactly where one of the literals does."""
    model.add_bool_or([~literal, *literals])
    for one in literals:
        model.add_implication(one, literal)


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a job's times before any search, in microseconds.

    Parameters
    ----------
    release
        No block starts earlier.
    iteration
        No iteration is shorter.
    deadline
        No plan worth finding ends the job later.
    """

    release: int
    iteration: int
    deadline: int


@dataclass(slots=True)
class Exchange:
    """The transfer of one bucket in one iteration of a job that may use links."""

    start: cp_model.IntVar
    duration: Expression
    end: Expression


@dataclass(slots=True)
class JobVariables:
    """Variables of one job. A worker is known by its GPU: workers of a job are alike and on different GPUs.

    Parameters
    ----------
    job, window
        What the variables stand for.
    here
        ``here[g]``: the job has a worker on GPU ``g``; only GPUs that it may use.
    used
        ``used[s]``: the job has a worker on server ``s``.
    links
        ``links[k]``: transfers of the job use link ``k``.
    levels
        ``levels[i][g][d]``: the worker on ``g`` has level ``d`` in iteration ``i``.
    starts
        ``starts[i][g]``: start of its block; without a meaning where there is no worker.
    ends
        ``ends[i]``: moment from which iteration ``i + 1`` may start.
    exchanges
        ``exchanges[i][b-1]``, empty where the job can use no link.
    fewest, shortest
        Least number of contributors and least duration of each bucket's transfer.
    """

    job: PieceGraph
    window: Window
    here: dict[int, cp_model.IntVar] = field(default_factory=dict)
    used: dict[int, cp_model.IntVar] = field(default_factory=dict)
    links: dict[int, cp_model.IntVar] = field(default_factory=dict)
    levels: list[dict[int, dict[int, cp_model.IntVar]]] = field(default_factory=list)
    starts: list[dict[int, cp_model.IntVar]] = field(default_factory=list)
    ends: list[cp_model.IntVar] = field(default_factory=list)
    exchanges: list[list[Exchange]] = field(default_factory=list)
    fewest: list[int] = field(default_factory=list)
    shortest: list[int] = field(default_factory=list)

    def on_server(self, ground: Ground, server: int) -> Sequence[cp_model.IntVar]:
        """Placement variables of the GPUs of one server."""
        return [literal for g, literal in self.here.items() if ground.server(g) == server]
