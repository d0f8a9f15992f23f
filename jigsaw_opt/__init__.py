"""Scheduling of deep-learning training by mathematical optimisation.

The names below are loaded when first used, so importing the package costs next to nothing. ``docs/library.md`` shows
how they go together. What happens is logged to the logger ``jigsaw_opt``, which is silent until a program listens.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt import instances, scheduling
    from jigsaw_opt.checking import Violation, check
    from jigsaw_opt.checking.proofs import ProofFault, check_proof
    from jigsaw_opt.documents import (
        InstanceBuilder,
        add_job,
        change_bandwidth,
        instance_sha256,
        load_instance,
        load_plan,
        load_proof,
        remove_job,
        save_instance,
        save_plan,
        save_proof,
    )
    from jigsaw_opt.errors import InfeasibleError, InvalidInputError, JigsawError, Problem, UsageError
    from jigsaw_opt.executor.exchange.compression import EightBit as EightBit
    from jigsaw_opt.executor.exchange.compression import TopK as TopK
    from jigsaw_opt.executor.following import following as following
    from jigsaw_opt.executor.level_schedule import LevelSchedule
    from jigsaw_opt.executor.partial import PartialBackprop as PartialBackprop
    from jigsaw_opt.executor.profiling import profile as profile
    from jigsaw_opt.executor.run_plan import run_plan
    from jigsaw_opt.executor.schedules.request import ReplayRequest
    from jigsaw_opt.instances.conversion import read
    from jigsaw_opt.planning.burst.burst import burst
    from jigsaw_opt.planning.fill.fill import fill
    from jigsaw_opt.planning.partition.partition import partition
    from jigsaw_opt.planning.per_progress import solve_per_progress
    from jigsaw_opt.planning.pipeline.pipeline import pipeline
    from jigsaw_opt.planning.planned import Planned
    from jigsaw_opt.problem.bound_proof import BoundProof
    from jigsaw_opt.problem.cluster import Cluster, Link, Server
    from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
    from jigsaw_opt.problem.efficiency import Efficiency
    from jigsaw_opt.problem.exchange import JobExchange
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.job import Job
    from jigsaw_opt.problem.measured.replay import Replay
    from jigsaw_opt.problem.model import Model, Segment
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob
    from jigsaw_opt.problem.workload import TraceJob, Workload
    from jigsaw_opt.scheduling.live.plan_change import PlanChange
    from jigsaw_opt.scheduling.live.scheduler import LiveScheduler
    from jigsaw_opt.simulation.inputs.request import SimulationRequest
    from jigsaw_opt.simulation.prediction.when import when
    from jigsaw_opt.simulation.results.folder import ResultFolder
    from jigsaw_opt.simulation.results.result import SimulationResult
    from jigsaw_opt.simulation.simulate import simulate
    from jigsaw_opt.solvers.certification import certify
    from jigsaw_opt.solvers.explanation import explain
    from jigsaw_opt.solvers.failures import failures
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.params import SearchParams
    from jigsaw_opt.solvers.resolve import Fix, placements_of
    from jigsaw_opt.solvers.result import Conflict, Event, Report, Result, Status, StoppedBy
    from jigsaw_opt.solvers.session import Session
    from jigsaw_opt.solvers.solve import solve
    from jigsaw_opt.solvers.solve_state.request import Solver
    from jigsaw_opt.solvers.solving import Solving, solve_async, solving
    from jigsaw_opt.sweeps.calls import advise
    from jigsaw_opt.views.export import export
    from jigsaw_opt.views.html import picture

__version__ = "0.2.0"

_NAMES = {
    "checking": ("Violation", "check"),
    "checking.proofs": ("ProofFault", "check_proof"),
    "documents": (
        "InstanceBuilder",
        "add_job",
        "change_bandwidth",
        "instance_sha256",
        "load_instance",
        "load_plan",
        "load_proof",
        "remove_job",
        "save_instance",
        "save_plan",
        "save_proof",
    ),
    "errors": ("InfeasibleError", "InvalidInputError", "JigsawError", "Problem", "UsageError"),
    "instances.conversion": ("read",),
    "executor.exchange.compression": ("EightBit", "TopK"),
    "executor.following": ("following",),
    "executor.level_schedule": ("LevelSchedule",),
    "executor.partial": ("PartialBackprop",),
    "executor.profiling": ("profile",),
    "executor.schedules.request": ("ReplayRequest",),
    "executor.run_plan": ("run_plan",),
    "planning.partition.partition": ("partition",),
    "planning.pipeline.pipeline": ("pipeline",),
    "planning.per_progress": ("solve_per_progress",),
    "planning.burst.burst": ("burst",),
    "planning.fill.fill": ("fill",),
    "planning.planned": ("Planned",),
    "problem.bound_proof": ("BoundProof",),
    "problem.cluster": ("Cluster", "Link", "Server"),
    "problem.exchange": ("JobExchange",),
    "problem.instance": ("Instance",),
    "problem.job": ("Job",),
    "problem.depth": ("FreeDepth", "FullDepth", "StaircaseDepth"),
    "problem.efficiency": ("Efficiency",),
    "problem.measured.replay": ("Replay",),
    "problem.model": ("Model", "Segment"),
    "problem.plan": ("Plan",),
    "problem.task_graph": ("TaskGraph", "TaskGraphJob"),
    "problem.workload": ("TraceJob", "Workload"),
    "scheduling.live.plan_change": ("PlanChange",),
    "scheduling.live.scheduler": ("LiveScheduler",),
    "simulation.inputs.request": ("SimulationRequest",),
    "simulation.prediction.when": ("when",),
    "simulation.results.folder": ("ResultFolder",),
    "simulation.results.result": ("SimulationResult",),
    "simulation.simulate": ("simulate",),
    "solvers.certification": ("certify",),
    "solvers.explanation": ("explain",),
    "solvers.failures": ("failures",),
    "solvers.options": ("Options",),
    "solvers.params": ("SearchParams",),
    "solvers.solve_state": ("Solver",),
    "solvers.resolve": ("Fix", "placements_of"),
    "solvers.result": ("Conflict", "Event", "Report", "Result", "Status", "StoppedBy"),
    "solvers.session": ("Session",),
    "solvers.solve": ("solve",),
    "solvers.solving": ("Solving", "solve_async", "solving"),
    "views.export": ("export",),
    "sweeps.calls": ("advise",),
    "views.html": ("picture",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
"""The module of each name."""
_NEED_TORCH = ("EightBit", "PartialBackprop", "TopK", "following", "profile")
"""Names that cannot be had without the extra ``torch``, so that ``import *`` leaves them out."""
_ROOMS = ("instances", "scheduling")
"""Rooms that are names of this one, too."""

__all__ = [
    "BoundProof",
    "Cluster",
    "Conflict",
    "Efficiency",
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
    "JobExchange",
    "LevelSchedule",
    "Link",
    "LiveScheduler",
    "Model",
    "Options",
    "Plan",
    "PlanChange",
    "Planned",
    "Problem",
    "ProofFault",
    "Replay",
    "ReplayRequest",
    "Report",
    "Result",
    "ResultFolder",
    "SearchParams",
    "Segment",
    "Server",
    "Session",
    "SimulationRequest",
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
    "advise",
    "burst",
    "certify",
    "change_bandwidth",
    "check",
    "check_proof",
    "explain",
    "export",
    "failures",
    "fill",
    "instance_sha256",
    "instances",
    "load_instance",
    "load_plan",
    "load_proof",
    "partition",
    "picture",
    "pipeline",
    "placements_of",
    "read",
    "remove_job",
    "run_plan",
    "save_instance",
    "save_plan",
    "save_proof",
    "scheduling",
    "simulate",
    "solve",
    "solve_async",
    "solve_per_progress",
    "solving",
    "when",
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
