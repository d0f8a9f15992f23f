"""Scheduling of deep-learning training by mathematical optimisation.

The names below are loaded when first used, so importing the package costs next to nothing. ``docs/library.md`` shows
how they go together. What happens is logged to the logger ``jigsaw_opt``, which is silent until a program listens.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt import instances as instances
    from jigsaw_opt import scheduling as scheduling
    from jigsaw_opt.checking import Violation as Violation
    from jigsaw_opt.checking import check as check
    from jigsaw_opt.documents import InstanceBuilder as InstanceBuilder
    from jigsaw_opt.documents import add_job as add_job
    from jigsaw_opt.documents import change_bandwidth as change_bandwidth
    from jigsaw_opt.documents import instance_sha256 as instance_sha256
    from jigsaw_opt.documents import load_instance as load_instance
    from jigsaw_opt.documents import load_plan as load_plan
    from jigsaw_opt.documents import remove_job as remove_job
    from jigsaw_opt.documents import save_instance as save_instance
    from jigsaw_opt.documents import save_plan as save_plan
    from jigsaw_opt.errors import InfeasibleError as InfeasibleError
    from jigsaw_opt.errors import InvalidInputError as InvalidInputError
    from jigsaw_opt.errors import JigsawError as JigsawError
    from jigsaw_opt.errors import Problem as Problem
    from jigsaw_opt.errors import UsageError as UsageError
    from jigsaw_opt.executor.following import following as following
    from jigsaw_opt.executor.partial import PartialBackprop as PartialBackprop
    from jigsaw_opt.executor.profiling import profile as profile
    from jigsaw_opt.executor.replay.request import ReplayRequest as ReplayRequest
    from jigsaw_opt.executor.run_plan import run_plan as run_plan
    from jigsaw_opt.problem.cluster import Cluster as Cluster
    from jigsaw_opt.problem.cluster import Link as Link
    from jigsaw_opt.problem.cluster import Server as Server
    from jigsaw_opt.problem.instance import Instance as Instance
    from jigsaw_opt.problem.job import FreeDepth as FreeDepth
    from jigsaw_opt.problem.job import FullDepth as FullDepth
    from jigsaw_opt.problem.job import Job as Job
    from jigsaw_opt.problem.job import StaircaseDepth as StaircaseDepth
    from jigsaw_opt.problem.measured.replay import Replay as Replay
    from jigsaw_opt.problem.model import Model as Model
    from jigsaw_opt.problem.model import Segment as Segment
    from jigsaw_opt.problem.plan import Plan as Plan
    from jigsaw_opt.problem.task_graph import TaskGraph as TaskGraph
    from jigsaw_opt.problem.task_graph import TaskGraphJob as TaskGraphJob
    from jigsaw_opt.problem.workload import TraceJob as TraceJob
    from jigsaw_opt.problem.workload import Workload as Workload
    from jigsaw_opt.scheduling.live.plan_change import PlanChange as PlanChange
    from jigsaw_opt.scheduling.live.scheduler import LiveScheduler as LiveScheduler
    from jigsaw_opt.simulation.simulate import SimulationResult as SimulationResult
    from jigsaw_opt.simulation.simulate import simulate as simulate
    from jigsaw_opt.solvers.options import Options as Options
    from jigsaw_opt.solvers.params import SearchParams as SearchParams
    from jigsaw_opt.solvers.registry import Solver as Solver
    from jigsaw_opt.solvers.resolve import Fix as Fix
    from jigsaw_opt.solvers.resolve import placements_of as placements_of
    from jigsaw_opt.solvers.result import Conflict as Conflict
    from jigsaw_opt.solvers.result import Event as Event
    from jigsaw_opt.solvers.result import Report as Report
    from jigsaw_opt.solvers.result import Result as Result
    from jigsaw_opt.solvers.result import Status as Status
    from jigsaw_opt.solvers.result import StoppedBy as StoppedBy
    from jigsaw_opt.solvers.session import Session as Session
    from jigsaw_opt.solvers.solve import solve as solve
    from jigsaw_opt.solvers.solving import Solving as Solving
    from jigsaw_opt.solvers.solving import solve_async as solve_async
    from jigsaw_opt.solvers.solving import solving as solving
    from jigsaw_opt.views.html import picture as picture

__version__ = "0.2.0"

_HOMES = {
    "Cluster": "problem.cluster",
    "Conflict": "solvers.result",
    "InfeasibleError": "errors",
    "Event": "solvers.result",
    "Fix": "solvers.resolve",
    "FreeDepth": "problem.job",
    "FullDepth": "problem.job",
    "Instance": "problem.instance",
    "InstanceBuilder": "documents",
    "InvalidInputError": "errors",
    "JigsawError": "errors",
    "Job": "problem.job",
    "Link": "problem.cluster",
    "LiveScheduler": "scheduling.live.scheduler",
    "Model": "problem.model",
    "Options": "solvers.options",
    "PartialBackprop": "executor.partial",
    "Plan": "problem.plan",
    "PlanChange": "scheduling.live.plan_change",
    "Problem": "errors",
    "Replay": "problem.measured.replay",
    "ReplayRequest": "executor.replay.request",
    "Report": "solvers.result",
    "Result": "solvers.result",
    "SearchParams": "solvers.params",
    "Segment": "problem.model",
    "Server": "problem.cluster",
    "Session": "solvers.session",
    "TaskGraph": "problem.task_graph",
    "TaskGraphJob": "problem.task_graph",
    "SimulationResult": "simulation.simulate",
    "Solver": "solvers.registry",
    "Solving": "solvers.solving",
    "StaircaseDepth": "problem.job",
    "Status": "solvers.result",
    "StoppedBy": "solvers.result",
    "TraceJob": "problem.workload",
    "UsageError": "errors",
    "Violation": "checking",
    "Workload": "problem.workload",
    "add_job": "documents",
    "change_bandwidth": "documents",
    "check": "checking",
    "following": "executor.following",
    "instance_sha256": "documents",
    "load_instance": "documents",
    "load_plan": "documents",
    "picture": "views.html",
    "placements_of": "solvers.resolve",
    "profile": "executor.profiling",
    "remove_job": "documents",
    "run_plan": "executor.run_plan",
    "save_instance": "documents",
    "save_plan": "documents",
    "simulate": "simulation.simulate",
    "solve": "solvers.solve",
    "solve_async": "solvers.solving",
    "solving": "solvers.solving",
}
"""The module of each name."""
_NEED_TORCH = ("PartialBackprop", "following", "profile")
"""Names that cannot be had without the extra ``torch``, so that ``import *`` leaves them out."""
_ROOMS = ("instances", "scheduling")
"""Rooms that are names of this one, too."""

__all__ = [
    "Cluster",
    "Conflict",
    "Event",
    "Fix",
    "FreeDepth",
    "FullDepth",
    "InfeasibleError",
    "Instance",
    "InstanceBuilder",
    "InvalidInputError",
    "JigsawError",
    "Job",
    "Link",
    "LiveScheduler",
    "Model",
    "Options",
    "Plan",
    "PlanChange",
    "Problem",
    "Replay",
    "ReplayRequest",
    "Report",
    "Result",
    "SearchParams",
    "Segment",
    "Server",
    "Session",
    "SimulationResult",
    "Solver",
    "Solving",
    "StaircaseDepth",
    "Status",
    "StoppedBy",
    "TaskGraph",
    "TaskGraphJob",
    "TraceJob",
    "UsageError",
    "Violation",
    "Workload",
    "add_job",
    "change_bandwidth",
    "check",
    "instance_sha256",
    "instances",
    "load_instance",
    "load_plan",
    "picture",
    "placements_of",
    "remove_job",
    "run_plan",
    "save_instance",
    "save_plan",
    "scheduling",
    "simulate",
    "solve",
    "solve_async",
    "solving",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_TORCH:
        import_module(f"{__name__}.executor").require_torch()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NEED_TORCH})
