"""What a policy decides: which jobs run on which GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.scheduling.plain import DEPTH, Kept, NumberLimits, Shape, fields, listed, number, optional

MOST_SLOWDOWN = 100
"""Of a foreground job, which is kept in the foreground for less."""


@dataclass(frozen=True, slots=True)
class Share(Kept):
    """Some GPUs and the jobs that run on them.

    One job has all of the GPUs to itself. Several share them as a pool of which each uses as many as it asks for;
    which ones, and in which order, is the performance model's (a cyclic timetable, or Muri's stages).

    `jobs`: numbers of the jobs in the workload. `gpus`: numbers of the GPUs, ascending. They are numbered from 0
    through the servers in the cluster's order. `depths`: depth rule of each job; empty for full depth of all.
    `slowdown`: the first job is in the foreground, with iterations at most so many times as long as alone, and the
    others, of one GPU each, run in what it leaves. None where jobs of a pool take turns one to one.
    """

    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    depths: tuple[Depth, ...] = ()
    slowdown: float | None = None

    def depth(self, job: int) -> Depth:
        """Return the depth rule of a job of this share."""
        return self.depths[self.jobs.index(job)] if self.depths else FullDepth()

    def without(self, job: int) -> Share:
        """Return the same GPUs once `job` has ended."""
        kept = [k for k, other in enumerate(self.jobs) if other != job]
        filled = kept[:1] == [0] and len(kept) > 1
        return Share(
            tuple(self.jobs[k] for k in kept),
            self.gpus,
            tuple(self.depths[k] for k in kept) if self.depths else (),
            self.slowdown if filled else None,
        )

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        jobs, gpus = listed(limits.job, 1), listed(limits.gpu, 1)
        return fields(jobs=jobs, gpus=gpus, depths=listed(DEPTH), slowdown=optional(number(1, MOST_SLOWDOWN)))


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: what holds from now on.

    `shares`: all that runs; a job in no share waits. A GPU is in at most one share, and so is a job. `wake_us`: the
    policy is asked again when a job arrives or ends. It is asked at the first round from this time on even if nothing
    happens; None if it need not be. A policy that decides every round says ``observation.now_us + 1``. `stopped`:
    numbers of jobs that stop in any case: one that is in a share too starts anew, even if on the same GPUs. Any other
    job goes on where its GPUs stay the same.
    """

    shares: tuple[Share, ...] = field(default=())
    wake_us: int | None = None
    stopped: tuple[int, ...] = field(default=())
