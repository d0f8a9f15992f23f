"""What a policy decides: which jobs run on which GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

from jigsaw_opt.documents.encoding import encode_depth
from jigsaw_opt.documents.instance_decoding import decode_depth
from jigsaw_opt.problem.job import Depth, FullDepth
from jigsaw_opt.simulation.plain import DEPTH, NumberLimits, Plain, Shape, fields, listed

__all__ = ["Decision", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """Some GPUs and the jobs that run on them.

    One job has all of the GPUs to itself. Several share them as a pool of which each uses as many as it asks for;
    which ones, and in which order, is the performance model's (a cyclic timetable, or Muri's stages).

    Parameters
    ----------
    jobs
        Numbers of the jobs in the workload.
    gpus
        Numbers of the GPUs, ascending. They are numbered from 0 through the servers in the cluster's order.
    depths
        Depth rule of each job; empty for full depth of all.
    """

    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    depths: tuple[Depth, ...] = ()

    def depth(self, job: int) -> Depth:
        """Depth rule of a job of this share."""
        return self.depths[self.jobs.index(job)] if self.depths else FullDepth()

    def without(self, job: int) -> Share:
        """The same GPUs once `job` has ended."""
        kept = [k for k, other in enumerate(self.jobs) if other != job]
        return Share(
            tuple(self.jobs[k] for k in kept),
            self.gpus,
            tuple(self.depths[k] for k in kept) if self.depths else (),
        )

    def plain(self) -> Plain:
        """The share as it stands in a snapshot."""
        depths = [encode_depth(depth) for depth in self.depths]
        return {"jobs": list(self.jobs), "gpus": list(self.gpus), "depths": depths}

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """What `plain` gives."""
        return fields(jobs=listed(limits.job, 1), gpus=listed(limits.gpu, 1), depths=listed(DEPTH))

    @classmethod
    def restored(cls, tree: Plain) -> Share:
        """The share that `plain` gave."""
        return cls(tuple(tree["jobs"]), tuple(tree["gpus"]), tuple(map(decode_depth, tree["depths"])))


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds from now on.

    Parameters
    ----------
    shares
        All that runs; a job in no share waits. A GPU is in at most one share, and so is a job.
    wake_us
        The policy is asked again when a job arrives or ends. It is asked at the first round from this time on even
        if nothing happens; None if it need not be. A policy that decides every round says ``moment.now_us + 1``.
    """

    shares: tuple[Share, ...] = field(default=())
    wake_us: int | None = None
