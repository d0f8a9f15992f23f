"""`sjf_bco`: a batch of ring-all-reduce jobs whose exchanges contend for the servers' uplinks.

Yu, Ji, Rajan and Liu, *On scheduling ring-all-reduce learning jobs in multi-tenant GPU clusters with communication
contention*, MobiHoc 2022.
"""

from jigsaw_opt.formulations.sjf_bco.batch import (
    Batch,
    BatchNetwork,
    RingJob,
    Spread,
    estimate,
    iteration_us,
    overestimate,
    sharing,
    speed,
)
from jigsaw_opt.formulations.sjf_bco.program import ExchangeChain, ScheduleChoice, build, conflict_free, step
from jigsaw_opt.formulations.sjf_bco.schedule import BatchProgress, BatchSchedule, completion

__all__ = [
    "Batch",
    "BatchNetwork",
    "BatchProgress",
    "BatchSchedule",
    "ExchangeChain",
    "RingJob",
    "ScheduleChoice",
    "Spread",
    "build",
    "completion",
    "conflict_free",
    "estimate",
    "iteration_us",
    "overestimate",
    "sharing",
    "speed",
    "step",
]
