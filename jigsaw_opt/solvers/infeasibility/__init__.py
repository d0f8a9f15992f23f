"""Why an instance has no plan: certain causes before any search, and a minimal conflict after a proof.

Time makes an instance infeasible only where jobs have a deadline or a cycle-time limit: blocks and transfers can always
run one after the other, and on the finite horizon so can jobs. What can besides is the placement (GPU types, memory,
links, GPUs of one's own for all workers of a job) and a depth rule: of a job alone on the finite horizon, of all jobs
together on the cyclic one.
"""

from __future__ import annotations

from jigsaw_opt.solvers.infeasibility.certain import certain_causes, too_wide
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict
from jigsaw_opt.solvers.infeasibility.guarantees import exceeded_guarantees
from jigsaw_opt.solvers.infeasibility.placement_feasibility import placement_feasible
from jigsaw_opt.solvers.infeasibility.together import broken_together, restrict

__all__ = [
    "broken_together",
    "certain_causes",
    "exceeded_guarantees",
    "minimal_conflict",
    "placement_feasible",
    "restrict",
    "too_wide",
]
