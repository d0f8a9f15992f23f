"""What each process does where a phased plan is carried out."""

from __future__ import annotations

from itertools import chain

import torch
import torch.distributed as dist

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica
from jigsaw_opt.executor.replay.link_order import LinkOrder, Windows
from jigsaw_opt.executor.replay.order import ReplayExtent, ReplayOrder
from jigsaw_opt.executor.replay.phases import PhasePart, jobs_in_phases, phase_parts
from jigsaw_opt.executor.replay.rank_process import TIMEOUT, RankProcess
from jigsaw_opt.executor.replay.records import RankReport
from jigsaw_opt.executor.replay.request import PhasedReplayRequest
from jigsaw_opt.executor.replay.run import Run

__all__ = ["run_phases"]


def run_phases(request: PhasedReplayRequest) -> list[RankReport] | None:
    """Do the part of this process, which has joined the default process group.

    Parameters
    ----------
    request
        What to do, as often as its plan repeats each phase.

    Returns
    -------
    list of RankReport or None
        In the first process, what each one found, with a part for each phase of its group.
    """
    here = _PhasedProcess(request)
    return here.hand_over(here.replay())


class _PhasedProcess(RankProcess):
    """One process of a group, which goes through the phases of its group whatever the others do."""

    def __init__(self, request: PhasedReplayRequest) -> None:
        super().__init__(request, jobs_in_phases(request.instance, request.plan))
        groups = phase_parts(request.instance, request.plan)
        hosts = [self._hosts(parts) for parts in groups]
        # All processes make the groups of all, as torch asks.
        controls = [dist.new_group(ranks, TIMEOUT, "gloo") for ranks in hosts]
        own = next(group for group, ranks in enumerate(hosts) if self.rank in ranks)
        self.phases, self._group, self._first = groups[own], controls[own], hosts[own][0]
        self._replicas: dict[int, HostedReplica] = {}
        folder = request.checkpoint
        self._checkpoint = Checkpoint(folder, request) if folder is not None else None
        self._all_parts = list(chain.from_iterable(groups))

    def _hosts(self, parts: list[PhasePart]) -> list[int]:
        """Ranks of the processes that a group has workers in."""
        return sorted({rank for part in parts for job in part.numbers for rank in self.ranks[job]})

    def replay(self) -> RankReport:
        self.done = self._done()
        clock = ReplayClock(self.control)
        own_clock = clock.among(self._group, self._first)
        digests: dict[tuple[int, int], str] = {}
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        for number, part in enumerate(self.phases):
            self._enter(part, self.done)
            if number == 0:
                clock.meet()  # groups run side by side from the start
            self._carry_out(part, own_clock, part.done(self.done))
            self.note_memory(self._replicas.values())
            staying = {job for later in self.phases[number + 1 :] for job in later.numbers}
            digests |= self._leave(self._replicas.keys() - staying)
        return RankReport(list(self.parts), digests, self.memory, self.done)

    def _done(self) -> list[int]:
        """How many iterations each job has behind it: those of its last whole checkpoint, if the run goes on."""
        if self._checkpoint is None or not self.request.resume:
            return [0] * len(self.ranks)
        done = self._checkpoint.last_whole(self.ranks, self.control)
        if all(part.done(done) == part.iterations for part in self._all_parts):
            raise UsageError("the checkpoint has all repetitions of the phases")
        return done

    def _enter(self, part: PhasePart, done: list[int]) -> None:
        """Build the workers of this process whose jobs begin."""
        for job in part.numbers:
            if self.rank not in self.ranks[job] or job in self._replicas:
                continue
            self._replicas[job] = replica = self.host(job)
            if self._checkpoint is not None:
                self._checkpoint.resume(replica, done[job])
            initial = replica.worker.state()
            self.warm_up(replica)
            replica.worker.load(initial)

    def _leave(self, ended: set[int]) -> dict[tuple[int, int], str]:
        """Let the workers of jobs that have ended go, so that others have their memory; their parameters' digests."""
        found = {}
        for job in ended:
            replica = self._replicas.pop(job)
            found[job, replica.worker.number] = replica.parameters_sha256()
            replica.close()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # processes may share the device
        return found

    def _carry_out(self, part: PhasePart, clock: ReplayClock, done: list[int]) -> None:
        request = self.request
        order = ReplayOrder(part.instance, part.plan, request.backend == "nccl", self.gpus)
        progress = ReplayExtent(done, part.phase.count)
        replicas = {k: self._replicas[job] for k, job in enumerate(part.numbers) if job in self._replicas}
        windows = Windows(order, progress, self.rank, None, self.store.connect())
        links = LinkOrder(order, progress, self.rank, part.number)
        run = Run(order, progress, self.rank, replicas, windows, links, clock)
        run.pace, run.checkpoint, run.every = request.pace, self._checkpoint, request.every
        self.carry_out(run)
