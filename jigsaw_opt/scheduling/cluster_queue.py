"""A cluster at a moment, as a simulation may go on from it: what waits, what runs, and what had ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.live.job import News
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import JobState

__all__ = ["ClusterQueue", "PastJobs"]


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """The jobs of a cluster at a moment: those that wait and those that run.

    `jobs`: the jobs by number, in order of submission, those that run with their shares. `memory`: what the policy
    remembers; None where it begins, with all jobs new to it. `news`: what the policy has not been told. `wake_us`: when
    it asked to be woken. `down, dead`: GPUs of servers that are down, and links. They stay so.
    """

    now_us: int
    jobs: Mapping[int, JobState]
    next_job: int
    memory: Plain | None = None
    news: News = field(default_factory=News)
    wake_us: int | None = None
    down: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PastJobs:
    """The jobs up to a moment, from which run times and arrivals are drawn.

    `ended`: jobs that ended, in this order, each with its duration. `arrive`: whether later jobs arrive as they did
    before.
    """

    ended: tuple[TraceJob, ...]
    arrive: bool = True
