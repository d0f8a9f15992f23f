"""A simulation that goes on from a cluster that runs already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.cluster_queue import ClusterQueue
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.event_log import JobStatistics, Trigger
from jigsaw_opt.simulation.running import Running
from jigsaw_opt.simulation.setting import Setting

__all__ = ["TakenOver"]


class TakenOver(Simulation):
    """A simulation that begins with the jobs of a cluster as they are at a moment.

    `setting`: the cluster and who decides. The workload has a job for each number below `ClusterQueue.next_job`, and
    then those that arrive later. `queue`: the jobs at the beginning. What they are and how much they have to do is as
    the workload says. `done`: work done of each of these jobs. `ended`: jobs that ended before, in this order, with the
    microseconds that each lasted; some policies learn from them.
    """

    def __init__(
        self, setting: Setting, queue: ClusterQueue, done: Mapping[int, int], ended: Iterable[tuple[TraceJob, int]] = ()
    ) -> None:
        super().__init__(setting)
        self.now_us = queue.now_us
        self._failing.down, self._failing.dead, self._under_way.dead = queue.down, queue.dead, queue.dead
        running = {index for index, seen in queue.jobs.items() if seen.share is not None}
        ended_before = [index for index in range(queue.next_job) if index not in queue.jobs]
        self._arrivals.restore(running, ended_before, sorted(queue.jobs.keys() - running))
        arrived = running.union(self._arrivals.arrive())
        self._statistics.update((index, JobStatistics(0)) for index in self._arrivals.held)
        for index, seen in queue.jobs.items():
            if index not in arrived:
                continue
            job = setting.workload.jobs[index]
            active = replace(seen, job=job, work=setting.performance.work(job), done=done[index])
            start_us = queue.now_us - active.run_us
            self._active[index] = active
            self._statistics[index] = JobStatistics(0, start_us if index in running else None, active.done)
            if index in running:
                self._under_way.running[index] = Running.begun(active, setting, active.done, start_us, queue.now_us)
        shares = dict.fromkeys(active.share for active in self._active.values() if active.share is not None)
        self._event_log.crowd.set(len(self._active), self.now_us)
        self._under_way.begin(tuple(shares), self.now_us)
        self._event_log.hold(shares, setting.server_of, self.now_us)
        self._failing.stopped = list(queue.news.stopped)
        new = list(self._active) if queue.memory is None else list(queue.news.arrived)
        self._trigger = Trigger(True, queue.wake_us, new, list(queue.news.ended))
        if queue.memory is None:
            self._policy.learn(ended)
        else:
            self._policy.restore(queue.memory, self._observation(self._trigger))

    def _end(self, running: Running, share: Share) -> Share:
        rest, index = super()._end(running, share), running.active.index
        if (
            index in self._trigger.arrived
        ):  # of a job that ran and ended before the first round the policy knows nothing
            self._trigger.arrived.remove(index)
            self._trigger.ended.remove(index)
        return rest

    def has_started(self, asked: Collection[int], starts: dict[int, int]) -> bool:
        """Note when jobs that run by now started, and return whether all have that are asked about.

        `starts`: by number when a job started, in microseconds; entries are added.
        """
        for index in asked:
            statistics = self._statistics.get(index)
            if statistics is not None and statistics.start_us is not None:
                starts.setdefault(index, statistics.start_us)
        return len(starts) == len(asked)
