"""Jobs that send over their links in turn: time shifts (CASSINI, NSDI'24), shared links, and ratios of iterations."""

from jigsaw_opt.planning.shifts.affinity import TimeShifts, time_shifts
from jigsaw_opt.planning.shifts.jobs import RepeatedJob, draw_placement, placement_of, repeated_jobs
from jigsaw_opt.planning.shifts.link_rates import SharedRun, simulate_shared

__all__ = [
    "RepeatedJob",
    "SharedRun",
    "TimeShifts",
    "draw_placement",
    "placement_of",
    "repeated_jobs",
    "simulate_shared",
    "time_shifts",
]
