"""A scheduler for programs that run a cluster: events in, changes of the plan out."""

from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.events import (
    ClusterEvent,
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobRunning,
    JobSubmitted,
    LinkDown,
    LinkUp,
    PriorityChanged,
    QuotaChanged,
    ServerAdded,
    ServerBack,
    ServerDrained,
    ServerLost,
    decode_event,
    encode_event,
)
from jigsaw_opt.scheduling.live.explaining import Influence, LiveExplanation
from jigsaw_opt.scheduling.live.plan_change import JobAssignment, JobMove, JobStart, JobStop, PlanChange
from jigsaw_opt.scheduling.live.remedies import Remedy
from jigsaw_opt.scheduling.live.scheduler import LiveScheduler

__all__ = [
    "ClusterEvent",
    "ClusterState",
    "Influence",
    "JobAssignment",
    "JobCancelled",
    "JobFinished",
    "JobMove",
    "JobProgressed",
    "JobRunning",
    "JobStart",
    "JobStop",
    "JobSubmitted",
    "LinkDown",
    "LinkUp",
    "LiveExplanation",
    "LiveScheduler",
    "PlanChange",
    "PriorityChanged",
    "QuotaChanged",
    "Remedy",
    "ServerAdded",
    "ServerBack",
    "ServerDrained",
    "ServerLost",
    "decode_event",
    "encode_event",
]
