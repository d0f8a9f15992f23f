"""The part of the model that concerns one job alone: placement, levels, links, and the order of its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.channel import ChannelEncoding, add_channel, add_links
from jigsaw_opt.formulations.cpsat_timetable.placement import add_depth_rule, add_placement
from jigsaw_opt.formulations.cpsat_timetable.timing import add_durations, add_exchanges, add_iterations, add_readiness
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.network import RoutedNetwork

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["add_job"]


def add_job(proto: cp_model.CpModel, network: RoutedNetwork, job_vars: JobVariables) -> ChannelEncoding:
    """Add the variables and constraints of one job, and return the rate and latency of its transfers."""
    add_placement(proto, network.eligibility, job_vars)
    add_depth_rule(proto, job_vars)
    add_iterations(proto, job_vars)
    add_links(proto, network, job_vars)
    channel = add_channel(proto, network, job_vars)
    durations = add_durations(proto, job_vars, channel)
    add_exchanges(proto, job_vars, durations)
    add_readiness(proto, network.eligibility, job_vars, durations)
    return channel
