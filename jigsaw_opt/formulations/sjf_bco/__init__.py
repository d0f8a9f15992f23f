"""`sjf_bco`: a batch of ring-all-reduce jobs whose exchanges contend for the servers' uplinks.

Yu, Ji, Rajan and Liu, *On scheduling ring-all-reduce learning jobs in multi-tenant GPU clusters with communication
contention*, MobiHoc 2022.
"""

from jigsaw_opt.formulations.sjf_bco.batch import (
    Batch,
    Network,
    RingJob,
    Spread,
    estimate,
    iteration_us,
    overestimate,
    sharing,
    speed,
)
from jigsaw_opt.formulations.sjf_bco.chains import Chain, conflict_free, step
from jigsaw_opt.formulations.sjf_bco.program import Model, build
from jigsaw_opt.formulations.sjf_bco.schedule import Progress, Schedule, completion

__all__ = [
    "Batch",
    "Chain",
    "Model",
    "Network",
    "Progress",
    "RingJob",
    "Schedule",
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
