"""A cluster that is scheduled while it runs: its jobs and their progress, what runs where, and what is out of use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from typing import Any, NamedTuple

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.dependencies import ArrayPlaces, numbers_by_name
from jigsaw_opt.scheduling.live import events
from jigsaw_opt.scheduling.live.job import LiveJob, News
from jigsaw_opt.scheduling.live.plan_change import JobAssignment
from jigsaw_opt.scheduling.live.start_prediction import ClusterQueue
from jigsaw_opt.scheduling.performance import UNITS, Performance
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import JobState, Observation, PolicySetting

_MOST_FAILED_STARTS = 3
"""After so many failed starts in a row a job is put aside."""


class CountedProgress(NamedTuple):
    """What was counted at a time: run time, GPU time and work done of the jobs that run, by number.

    `asked`: whether the policy was to be asked. `admitted`: jobs that it has been told of since.
    """

    now_us: int
    counted: dict[int, tuple[int, int, int]]
    asked: bool
    admitted: list[int]


class ClusterState:
    """The state of a cluster between events.

    `setting`: what policies know of the cluster, which only grows at its end. `policy_shares`: whether the chosen
    policy has jobs share GPUs. `now_us`: the time of the last event or step. `jobs`: active jobs by number, in
    order of submission. `lost, drained, cordoned, failed, dead`: numbers of servers that are lost, drained or
    cordoned, of GPUs that have failed, and of links that are down. `news`: what the policy has not been told.
    `asked, wake_us`: whether the policy is to be asked, or else from when on. `told`: what each job by name runs
    on, as far as steps have told. `cancelled`: what jobs by name run on that were cancelled since the last step.
    Another job may have the name by now. `reasons`: why jobs have lost their GPUs since then, beside the policy, by
    name. `quotas`: the most GPUs that jobs of a queue may ask for before others of it wait. `moves_us`: when the
    policy has stopped or moved jobs that ran, in the last hour. `failed_steps`: how many steps in a row were late
    or failed. `fallen`: whether ``fifo`` decides in place of the policy.
    """

    def __init__(self, setting: PolicySetting, policy_shares: bool) -> None:
        self.setting, self.policy_shares = setting, policy_shares
        self.now_us = 0
        self.jobs: dict[int, LiveJob] = {}
        self.numbers: dict[str, int] = {}
        self.shares: tuple[Share, ...] = ()
        self.lost: set[int] = set()
        self.drained: set[int] = set()
        self.cordoned: set[int] = set()
        self.failed: set[int] = set()
        self.dead: set[int] = set()
        self.news = News()
        self.asked = False
        self.wake_us: int | None = None
        self.next_job = 0
        self.told: dict[str, JobAssignment] = {}
        self.cancelled: dict[str, JobAssignment] = {}
        self.reasons: dict[str, str] = {}
        self.added: list[events.ServerAdded] = []
        self.quotas: dict[str, int] = {}
        self.moves_us: list[int] = []
        self.failed_steps = 0
        self.fallen = False

    def copy(self) -> ClusterState:
        """Return a state that changes apart from this one."""
        made = copy(self)
        made.__dict__ |= {key: copy(one) for key, one in vars(self).items() if isinstance(one, dict | set | list)}
        made.jobs = {index: job.copy() for index, job in self.jobs.items()}
        made.news = self.news.after(News())
        return made

    @property
    def down(self) -> frozenset[int]:
        """GPUs that nothing may be put on."""
        return self._gpus_of(self.lost | self.drained) | self.failed

    @property
    def closed(self) -> frozenset[int]:
        """GPUs that a policy may put nothing on: also those of cordoned servers, and of the jobs that run there."""
        kept = (share.gpus for share in self.shares if self.jobs[share.jobs[0]].held)
        return self.down.union(self._gpus_of(self.cordoned), *kept)

    def _gpus_of(self, servers: Iterable[int]) -> frozenset[int]:
        return frozenset(gpu for server in servers for gpu in self.setting.gpus_of[server])

    @property
    def active(self) -> dict[int, JobState]:
        """The jobs as policies see them."""
        return {index: job.active for index, job in self.jobs.items()}

    @property
    def due(self) -> bool:
        """Whether there is something for the policy to decide now."""
        if all(job.held for job in self.jobs.values()) or len(self.closed) == self.setting.gpu_count:
            return False
        return self.asked or (self.wake_us is not None and self.wake_us <= self.now_us)

    def used(self, queue: str) -> int:
        """Return GPUs that jobs of a queue ask for, without those that wait for room in its quota."""
        jobs = (job for job in self.jobs.values() if job.queue == queue)
        return sum(job.active.job.gpus for job in jobs if not job.held or job.active.share is not None)

    def observation(self) -> Observation:
        """Return what a policy would see now; what it sees does not change while it decides."""
        jobs = {index: job.active.copy() for index, job in self.jobs.items() if not job.held}
        shares = tuple(share for share in self.shares if share.jobs[0] in jobs)
        news = {each.name: tuple(getattr(self.news, each.name)) for each in fields(self.news)}
        return Observation(self.now_us, jobs, shares, **news, down=self.closed, dead=frozenset(self.dead))

    def advance(self, now_us: int) -> CountedProgress:
        """Count progress and service up to now."""
        if now_us < self.now_us:
            raise UsageError(f"time goes back from {self.now_us} to {now_us} us", code="wrong-order", path="now_us")
        held, before = now_us - self.now_us, CountedProgress(self.now_us, {}, self.asked, [])
        for share in self.shares:
            for index, job in ((index, self.jobs[index]) for index in share.jobs):
                before.counted[index] = job.active.run_us, job.active.gpu_us, job.active.done
                job.active.run_us += held
                job.active.gpu_us += held * len(share.gpus) // len(share.jobs)
                job.estimate(now_us)
        self.now_us = now_us
        before.admitted.extend([*self.keep_apart(), *self._admit()])
        return before

    def go_back(self, before: CountedProgress) -> None:
        """Undo the last `advance`, since which nothing has happened."""
        self.now_us, self.asked = before.now_us, before.asked
        for index in before.admitted:
            self.jobs[index].held = True
            self.news.end(index)
        for index, counted in before.counted.items():
            active = self.jobs[index].active
            active.run_us, active.gpu_us, active.done = counted

    # Events -------------------------------------------------------------------------------------------------

    def handle(self, event: events.ClusterEvent) -> None:
        """Take in an event that `check_event` has found right; the cluster of an added server is set up before."""
        if event.time_us != self.now_us:  # or else there is nothing to count
            self.advance(event.time_us)
        _HANDLERS[type(event)](self, event)
        if isinstance(event, events.ServerAdded | events.ServerBack | events.GpuBack | events.LinkUp):
            self.take_up()  # the policy may not fail again
        self.keep_apart()
        self._admit()
        self.asked |= bool(self.news.stopped) or not isinstance(event, events.JobProgressed | events.OfLink)

    def take_up(self) -> None:
        """Have the policy asked again about the jobs that are put aside."""
        for job in self.jobs.values():
            job.take_up()

    def _submit(self, event: events.JobSubmitted | events.JobRunning, submit_us: int | None = None) -> None:
        submit_us = max(event.time_us, event.job.submit_us) if submit_us is None else submit_us
        job, index = replace(event.job, submit_us=submit_us), self.next_job
        work = self.setting.performance.work(job)
        own = LiveJob(JobState(index, job, work), queue=event.queue, held=True)
        if isinstance(event, events.JobSubmitted) and job.after:  # one that runs has waited for others
            named = self.numbers_by_name()
            own.waits_for = sorted({k for name in job.after for k in named.get(name, ())})
        self.jobs[index], self.numbers[job.name] = own, index
        self.next_job += 1

    def _run(self, event: events.JobRunning) -> None:
        """Have a job run where it does in truth; the policy is told that it has been started."""
        name = event.job.name
        if name not in self.numbers:
            self._submit(event, min(event.job.submit_us, event.started_us))
        job = self._job(name)
        active, gpus = job.active, self.gpu_numbers(event.gpus)
        active.job = replace(active.job, submit_us=min(active.job.submit_us, event.started_us))
        if active.gpus != gpus:
            if active.share is None:
                missed_us = self.now_us - max(event.started_us, active.run_us)  # no more than since the beginning
                active.run_us += missed_us
                active.gpu_us += missed_us * len(gpus)
            self._take_off(job)
            share = self.joined(active.index, gpus)
            self.shares = (*(one for one in self.shares if one.gpus != gpus), share)
            active.starts += 1
            job.take_up()
            for one in map(self.jobs.__getitem__, share.jobs):
                one.active.share = share
                one.forget_speed()
                if one.held:
                    one.held = False
                    self.news.arrive(one.active.index)
                self.news.stop(one.active.index)
            self.reasons.pop(name, None)
        assert active.share is not None
        job.failed_starts = 0
        found = (self._assignment(active.share, index) for index in active.share.jobs)
        self.told |= {assignment.job: assignment for assignment in found}
        if event.iterations is not None:
            self._report(job, event.iterations)

    def joined(self, index: int, gpus: tuple[int, ...]) -> Share:
        """Return the share of a job that runs on GPUs: at full depth, and with the jobs that have just these GPUs."""
        for share in self.shares:
            if share.gpus == gpus:
                rest = share.without(index) if index in share.jobs else share
                depths = (*rest.depths, FullDepth()) if rest.depths else ()
                return replace(rest, jobs=(*rest.jobs, index), depths=depths)
        return Share((index,), gpus)

    def _progress(self, event: events.JobProgressed) -> None:
        self._report(self._job(event.job), event.iterations)

    def _report(self, job: LiveJob, iterations: float) -> None:
        job.report(self.now_us, min(job.active.work - 1, int(iterations * UNITS)))

    def _take_off(self, job: LiveJob) -> None:
        """Take a job off its GPUs, if it has any; those that it shares them with go on."""
        index, share = job.active.index, job.active.share
        if share is None:
            return
        rest = share.without(index)
        self.shares = tuple(rest if one == share else one for one in self.shares if one != share or rest.jobs)
        for partner in map(self.jobs.__getitem__, rest.jobs):
            partner.active.share = rest
            partner.forget_speed()
        job.leave()

    def _leave(self, event: events.JobFinished | events.JobCancelled) -> None:
        job = self._job(event.job)
        index = job.active.index
        self._take_off(job)
        del self.jobs[index], self.numbers[event.job]
        if not job.held:
            self.news.end(index, isinstance(event, events.JobFinished))
        told = self.told.pop(event.job, None)
        self.reasons.pop(event.job, None)
        if told is not None and isinstance(event, events.JobCancelled):
            self.cancelled[event.job] = told

    def _requeue(self, event: events.StartFailed | events.JobRequeued) -> None:
        """Have a job wait that does not run in truth; no stop of it is told."""
        job = self._job(event.job)
        ran = job.active.share is not None
        if ran:
            self._take_off(job)
            self.reasons[event.job] = "it was requeued"
            if not job.held:
                self.news.stop(job.active.index)
        was_told = self.told.pop(event.job, None) is not None
        if isinstance(event, events.JobRequeued):
            job.active.done = job.reported
            job.failed_starts = 0 if ran else job.failed_starts
            return
        for gpu in event.gpus:
            self._change_gpu(events.GpuFailed(event.time_us, gpu))
        if not (ran or was_told):  # no step has told of a start that could have failed
            return
        why = f": {event.reason}" if event.reason else ""
        self.reasons[event.job] = f"its start failed{why}"
        job.failed_starts += not event.gpus
        if job.failed_starts >= _MOST_FAILED_STARTS:
            job.aside = f"its start failed {job.failed_starts} times{why}"
            self._keep_from_policy(job)

    def _hold(self, event: events.JobHeld | events.JobReleased) -> None:
        self._job(event.job).on_hold = isinstance(event, events.JobHeld)

    def _freeze(self, event: events.JobFrozen | events.JobThawed) -> None:
        job = self._job(event.job)
        job.frozen, job.stays_until_us = isinstance(event, events.JobFrozen), 0

    def _prioritise(self, event: events.PriorityChanged) -> None:
        job = self._job(event.job)
        job.take_up()
        job.active.job = replace(job.active.job, weight=event.weight, foreground=event.foreground)

    def _limit(self, event: events.QuotaChanged) -> None:
        if event.gpus is None:
            self.quotas.pop(event.queue, None)
        else:
            self.quotas[event.queue] = event.gpus

    def is_apart(self, job: LiveJob) -> bool:
        """Return whether no policy is to decide on a job.

        It waits and is on hold; or it runs on a cordoned server, or stays where it is, or shares GPUs with one that
        stays, or shares any although the policy has no jobs share them.
        """
        if job.active.share is None:
            return job.on_hold
        together = job.active.share.jobs
        if any(self.jobs[index].stays_until_us > self.now_us for index in together):
            return True
        if len(together) > 1 and (self.fallen or not self.policy_shares):
            return True
        servers = {self.setting.server_of[gpu] for gpu in job.active.gpus} if self.cordoned else ()
        return not self.cordoned.isdisjoint(servers)

    def keep_apart(self) -> list[int]:
        """Have the policy take jobs for gone that it is not to decide on, and tell it of them when it is to again.

        Numbers of those that it is told of.
        """
        again: list[int] = []
        for job in self.jobs.values():
            if not job.held and self.is_apart(job):
                self._keep_from_policy(job)
            elif job.held and job.active.share is not None and not self.is_apart(job):
                job.held = False
                self.news.arrive(job.active.index)
                again.append(job.active.index)
        self.asked |= bool(again)
        return again

    def _keep_from_policy(self, job: LiveJob) -> None:
        """Have the policy take a job for gone, if it knows of it."""
        if not job.held:
            job.held = True
            self.news.end(job.active.index)

    def _admit(self) -> list[int]:
        """Tell the policy of jobs that wait for no others; those of most weight come first into a queue or an array.

        Their numbers.
        """
        held = [job for job in self.jobs.values() if job.held and job.active.job.submit_us <= self.now_us]
        held = [job for job in held if job.active.share is None]
        admitted: list[int] = []
        held = [job for job in held if not (job.aside or job.on_hold) and self.jobs.keys().isdisjoint(job.waits_for)]
        if not held:
            return admitted
        places = self.array_places()
        for job in sorted(held, key=lambda job: (-job.active.job.weight, job.active.index)):
            own, quota = job.active.job, self.quotas.get(job.queue)
            if places.has_room(own) and (quota is None or self.used(job.queue) + own.gpus <= quota):
                job.held = False
                places.take(own)
                admitted.append(job.active.index)
                self.news.arrive(job.active.index)
        self.asked |= bool(admitted)
        return admitted

    def array_places(self) -> ArrayPlaces:
        """Return the places of arrays that are taken: by tasks that run, or that the policy knows."""
        return ArrayPlaces(job.active.job for job in self.jobs.values() if not job.held or job.active.share is not None)

    @property
    def begin_us(self) -> int | None:
        """When the policy is told of the next job that was submitted for later, or that stays; None if of none."""
        held = (job for job in self.jobs.values() if job.held)
        times = (job.active.job.submit_us if job.active.share is None else job.stays_until_us for job in held)
        return min((time_us for time_us in times if self.now_us < time_us < LARGEST), default=None)

    def numbers_by_name(self) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the active jobs of each name and of each array."""
        return numbers_by_name({index: job.active.job for index, job in self.jobs.items()})

    def _add_server(self, event: events.ServerAdded) -> None:
        """Note the server; until its links came, nothing may have been known of the network."""
        self.added.append(event)
        gone = [share for share in self.shares if self.cut(share)]
        self._stop(gone, f"no route joins its servers: server {event.server.name!r} brought the first links", False)

    def _change_server(self, event: events.OfServer) -> None:
        number = [server.name for server in self.setting.cluster.servers].index(event.server)
        if isinstance(event, events.ServerBack):
            for out in (self.lost, self.drained, self.cordoned):
                out.discard(number)
            return
        if isinstance(event, events.ServerCordoned):
            self.cordoned.add(number)
            return
        lost = isinstance(event, events.ServerLost)
        (self.lost if lost else self.drained).add(number)
        own = self.setting.gpus_of[number]
        gone = [share for share in self.shares if not set(own).isdisjoint(share.gpus)]
        self._stop(gone, f"server {event.server!r} is {'lost' if lost else 'drained'}", lost)

    def _change_gpu(self, event: events.OfGpu) -> None:
        (number,) = self.gpu_numbers([event.gpu])
        if isinstance(event, events.GpuBack):
            self.failed.discard(number)
            return
        self.failed.add(number)
        gone = [share for share in self.shares if number in share.gpus]
        self._stop(gone, f"GPU {event.gpu!r} has failed", True)

    def _change_link(self, event: events.OfLink) -> None:
        number = [link.name for link in self.setting.cluster.links].index(event.link)
        if isinstance(event, events.LinkUp):
            self.dead.discard(number)
            self.asked = True  # jobs may wait for it
            return
        self.dead.add(number)
        gone = [share for share in self.shares if self.cut(share)]
        self._stop(gone, f"no route joins its servers while link {event.link!r} is down", False)

    def _job(self, name: str) -> LiveJob:
        return self.jobs[self.numbers[name]]

    def _stop(self, shares: Iterable[Share], reason: str, lost: bool) -> None:
        """Take GPUs from jobs; what they have done since their last report is gone if they are `lost`."""
        gone = set(shares)
        self.shares = tuple(share for share in self.shares if share not in gone)
        for job in (self.jobs[index] for share in gone for index in share.jobs):
            job.active.done = job.reported if lost else job.active.done
            job.leave()
            if not job.held:
                self.news.stop(job.active.index)
            self.reasons[job.active.job.name] = reason

    # Decisions ----------------------------------------------------------------------------------------------

    def cut(self, share: Share) -> bool:
        """Return whether no route of links that are up joins the servers of a share."""
        return self.setting.is_cut(share.gpus, frozenset(self.dead))

    def most_joined(self, gpus: Iterable[int]) -> int:
        """Return how many of some GPUs are at most on servers that routes of links that are up join."""
        part_of = self.setting.part_of(frozenset(self.dead))
        return max(Counter(part_of[self.setting.server_of[gpu]] for gpu in gpus).values(), default=0)

    def remaining(self, shares: Iterable[Share]) -> tuple[tuple[Share, ...], list[int]]:
        """Return the shares of an earlier decision that can run, and the jobs that cannot for what happened since.

        What something else than the policy has started since then goes on, and so does what runs on cordoned servers.
        """
        others = self.news.adopted(self.jobs).union(index for index, job in self.jobs.items() if job.held)
        kept = [share for share in self.shares if others.issuperset(share.jobs)]
        without: list[int] = []
        down = self.closed.union(*(share.gpus for share in kept))
        for share in shares:
            for index in [index for index in share.jobs if index not in self.jobs or index in others]:
                share = share.without(index)
            if not down.isdisjoint(share.gpus) or (share.jobs and self.cut(share)):
                without += share.jobs
            elif share.jobs:
                kept.append(share)
        return tuple(kept), without

    def apply(self, shares: tuple[Share, ...], without: Iterable[int], stopped: Mapping[int, str]) -> None:
        """Make `shares` what runs; `without` are jobs that the policy believes to run, and that do not.

        `stopped`: numbers of the jobs that start anew even on the GPUs that they have, each with the reason.
        """
        placed, adopted = {index: share for share in shares for index in share.jobs}, self.news.adopted(self.jobs)
        for index, job in self.jobs.items():
            before, after = job.active.share, placed.get(index)
            again = index in stopped and before is not None and after is not None and before.gpus == after.gpus
            if before == after and not again:
                continue
            if again:
                self.reasons[job.active.job.name] = stopped[index]
            if after is not None and (before is None or before.gpus != after.gpus or again):
                job.active.starts += 1
            job.active.share = after
            job.forget_speed()
        self.shares = shares
        self.news.stopped = [index for index in self.news.stopped if index not in placed or index in adopted]
        for index in without:
            self.news.stop(index)
        self.keep_apart()
        self.asked |= bool(self.news.ended)

    def put_aside(self, reasons: Mapping[int, str]) -> list[str]:
        """Keep jobs from a policy that fails with them and that takes them for gone; tell which, with the reasons."""
        found, adopted = list[str](), self.news.adopted(self.jobs)
        for index, reason in reasons.items():
            job = self.jobs.get(index)
            if job is None or job.held:  # it has gone while the policy decided, which need not be told of it
                self.news.keep_end(index)
                continue
            self.news.forget(index)
            if index in adopted:  # it has been started while the policy decided
                self.news.arrived.append(index)
                continue
            job.held, job.aside = True, reason
            name = job.active.job.name
            found.append(f"job {name!r} is put aside: {reason}")
            self.reasons[name] = f"it is put aside: {reason}"
        return found

    def forget_all(self) -> None:
        """Have a policy that begins anew be told of all jobs as new, of those that run as running."""
        self.news, self.asked = News([index for index, job in self.jobs.items() if not job.held]), True

    def queue(self, memory: Plain) -> ClusterQueue:
        """Return the jobs that the policy knows, or is to be told of, as a simulation goes on from them.

        With them are the jobs that run without the policy, and new ones that wait for a time, for other jobs of the
        queue, or for a place in their array; not those on hold, put aside, or beyond a quota.
        """
        seen = self.observation()
        figures = {each.name: getattr(seen, each.name) for each in fields(Observation)}
        found, places, unknown = dict[int, JobState](), self.array_places(), list[int]()
        for index, job in self.jobs.items():
            own, after = job.active.job, [k for k in job.waits_for if k in self.jobs]
            if job.held and job.active.share is None:
                waits = own.submit_us > self.now_us or after or not places.has_room(own)
                is_new = not (job.active.run_us or job.aside or job.on_hold or job.queue in self.quotas)
                if not (waits and is_new and found.keys() >= set(after)):
                    continue
                unknown.append(index)
            names = tuple(self.jobs[k].active.job.name for k in after) or None
            # No job has the name of the array then, so that nobody waits for all of it.
            array = own.array and f"{own.array}\0"
            found[index] = replace(job.active.copy(), job=replace(own, after=names, array=array))
        figures |= {"jobs": found, "shares": self.shares, "down": self.down | self._gpus_of(self.cordoned)}
        apart = frozenset(k for k, job in self.jobs.items() if job.held and job.active.share is not None)
        figures |= {"unknown": tuple(unknown), "apart": apart}
        return ClusterQueue(**figures, next_job=self.next_job, memory=memory, wake_us=self.wake_us)

    def assignments(self) -> Mapping[str, JobAssignment]:
        """Return what each job that runs has, by name."""
        found = (self._assignment(share, index) for share in self.shares for index in share.jobs)
        return {one.job: one for one in found}

    def _assignment(self, share: Share, job: int) -> JobAssignment:
        names = {index: self.jobs[index].active.job.name for index in share.jobs}
        gpus = tuple(self.setting.cluster.gpus.names[gpu] for gpu in share.gpus)
        partners = tuple(name for index, name in names.items() if index != job)
        return JobAssignment(names[job], gpus, share.depth(job), partners, share.slowdown)

    def gpu_numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of GPUs by name, ascending."""
        gpus = self.setting.cluster.gpus
        return tuple(sorted(gpus.of_server[server][k] for server, k in map(gpus.place_of.__getitem__, names)))

    def enlarged(self, event: events.ServerAdded, perform: Callable[[Cluster], Performance]) -> PolicySetting:
        """Return the setting with one server more; `check_addition` has found nothing wrong with it."""
        cluster = self.setting.cluster
        cluster = altered(cluster, servers=(*cluster.servers, event.server), links=(*cluster.links, *event.links))
        return replace(self.setting, cluster=cluster, performance=perform(cluster))


_HANDLERS: Mapping[type, Callable[[ClusterState, Any], None]] = {
    events.JobSubmitted: ClusterState._submit,
    events.JobRunning: ClusterState._run,
    events.JobProgressed: ClusterState._progress,
    **dict.fromkeys((events.JobFinished, events.JobCancelled), ClusterState._leave),
    **dict.fromkeys((events.StartFailed, events.JobRequeued), ClusterState._requeue),
    **dict.fromkeys((events.JobHeld, events.JobReleased), ClusterState._hold),
    **dict.fromkeys((events.JobFrozen, events.JobThawed), ClusterState._freeze),
    events.PriorityChanged: ClusterState._prioritise,
    events.QuotaChanged: ClusterState._limit,
    events.ServerAdded: ClusterState._add_server,
    **dict.fromkeys(
        (events.ServerCordoned, events.ServerDrained, events.ServerLost, events.ServerBack), ClusterState._change_server
    ),
    **dict.fromkeys((events.GpuFailed, events.GpuBack), ClusterState._change_gpu),
    **dict.fromkeys((events.LinkDown, events.LinkUp), ClusterState._change_link),
    events.PolicyBack: lambda state, event: None,  # the scheduler has changed the policy
}
"""What takes in each kind of event."""
