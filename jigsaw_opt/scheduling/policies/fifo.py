"""First in, first out: jobs start in order of submission and run to their end; a job that does not fit holds all
behind it that could have the same GPUs.
"""

from __future__ import annotations

from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus, started_in_turn
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policy import NEVER_STOPS, Observation


class _FifoScheduler(RigidScheduler):
    policy = "fifo"

    def decide(self, observation: Observation) -> Decision:
        free = FreeGpus(self.setting, observation.shares, observation.down, observation.dead)
        waiting = (active for active in observation.jobs.values() if active.share is None)
        started = started_in_turn(
            self.setting, waiting, lambda job, held: free.place(job, self.options["placement"], held)
        )
        return Decision((*observation.shares, *started))


_WORDS = "first in, first out: in order of submission, without preemption"
FIFO = NamedPolicy("fifo", _WORDS, _FifoScheduler, {"placement": PLACEMENTS}, NEVER_STOPS)
