"""The kinds of hosts; a new one is a file beside these and a line here."""

from __future__ import annotations

from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.burst import BurstHost
from jigsaw_opt.executor.hosts.dry import DryHost
from jigsaw_opt.executor.hosts.flow import FlowHost
from jigsaw_opt.executor.hosts.host import Host, HostSetting
from jigsaw_opt.executor.hosts.pipeline import PipelineHost
from jigsaw_opt.executor.hosts.replica import ReplicaHost

KINDS: tuple[type[Host], ...] = (DryHost, ReplicaHost, BurstHost, FlowHost, PipelineHost)
"""The first one that takes a job is its kind."""


def build_host(setting: HostSetting, job: int, number: int = 0, exchange: GradientExchange | None = None) -> Host:
    """Build what this process has of a job.

    `number, exchange`: which worker of it is here, and its exchange; None of a job in stages.
    """
    return next(kind for kind in KINDS if kind.takes(setting, job))(setting, job, number, exchange)
