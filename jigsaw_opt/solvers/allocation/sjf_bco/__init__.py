"""Algorithms for `sjf_bco`: SJF-BCO and its baselines, the exact program over all schedules, and LRETF."""

from jigsaw_opt.solvers.allocation.sjf_bco.algorithm import first_fit, least_load, random_fit, sjf_bco, smallest_first
from jigsaw_opt.solvers.allocation.sjf_bco.enumeration import all_schedules, best_schedule, choose
from jigsaw_opt.solvers.allocation.sjf_bco.machine import BatchOutcome
from jigsaw_opt.solvers.allocation.sjf_bco.rules import GpuLedger, Rule, Variant, longest_remaining_first, rule_of

__all__ = [
    "BatchOutcome",
    "GpuLedger",
    "Rule",
    "Variant",
    "all_schedules",
    "best_schedule",
    "choose",
    "first_fit",
    "least_load",
    "longest_remaining_first",
    "random_fit",
    "rule_of",
    "sjf_bco",
    "smallest_first",
]
