"""Algorithms for `sjf_bco`: SJF-BCO and its baselines, the exact program over all schedules, and LRETF."""

from jigsaw_opt.solvers.allocation.sjf_bco.algorithm import (
    Variant,
    first_fit,
    least_load,
    random_fit,
    sjf_bco,
    smallest_first,
)
from jigsaw_opt.solvers.allocation.sjf_bco.enumeration import all_schedules, best_schedule, choose
from jigsaw_opt.solvers.allocation.sjf_bco.lretf import longest_remaining_first
from jigsaw_opt.solvers.allocation.sjf_bco.machine import Outcome

__all__ = [
    "Outcome",
    "Variant",
    "all_schedules",
    "best_schedule",
    "choose",
    "first_fit",
    "least_load",
    "longest_remaining_first",
    "random_fit",
    "sjf_bco",
    "smallest_first",
]
