"""The data of the problem: cluster, models, jobs, instance, plan, and compiled jobs with their operations."""

from jigsaw_opt.problem.cluster import Channel, Cluster, Link, Routes, Server
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.depth import Depth, FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.efficiency import Efficiency
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.plan import (
    Block,
    Execution,
    Iteration,
    JobPlan,
    Phase,
    PhaseGroup,
    Plan,
    TaskGraphIteration,
    TaskGraphJobPlan,
    Transfer,
)
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.task_graph import (
    AsynchronousFamily,
    BurstFamily,
    Edge,
    MemoryInterval,
    PipelineFamily,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)

__all__ = [
    "AsynchronousFamily",
    "Block",
    "BurstFamily",
    "Channel",
    "Cluster",
    "Depth",
    "Edge",
    "Efficiency",
    "Execution",
    "FreeDepth",
    "FullDepth",
    "Instance",
    "Iteration",
    "Job",
    "JobExchange",
    "JobPlan",
    "Link",
    "MemoryInterval",
    "Model",
    "OperationGraph",
    "Operations",
    "Phase",
    "PhaseGroup",
    "PipelineFamily",
    "Plan",
    "PowerCap",
    "RoutePolicy",
    "Routes",
    "Segment",
    "Server",
    "Slot",
    "StaircaseDepth",
    "TaskGraph",
    "TaskGraphBlock",
    "TaskGraphIteration",
    "TaskGraphJob",
    "TaskGraphJobPlan",
    "TaskGraphTransfer",
    "Transfer",
    "compile_instance",
]
