"""Kueue: jobs of ClusterQueues are admitted within quotas by GPU type, which the queues of a cohort lend each other.

Sources: "ClusterQueue", "Cohort" and "Preemption", kueue.sigs.k8s.io, with classic preemption. As with topology-aware
scheduling, a job is admitted only where its GPUs are free. Described in docs/simulation.md.
"""

from __future__ import annotations

import hashlib
import logging
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.kubernetes.kueue import KueueQueues, QuotaNode, read_kueue
from jigsaw_opt.errors import UsageError, missing_option
from jigsaw_opt.problem.gpu_types import matching_types
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.option_values import file_names
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus
from jigsaw_opt.scheduling.plain import TEXT, Plain, checked, fields, listed, whole
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policies.kueue.quotas import Admitted, QuotaTree, UsageNode, preemption_targets
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation

_SHOWN = 5
_NONE = "none"
_CHANGES: Mapping[str, Sequence[str]] = {
    "queueing_strategy": (_NONE, "BestEffortFIFO", "StrictFIFO"),
    "within_cluster_queue": (_NONE, "Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaim_within_cohort": (_NONE, "Never", "LowerPriority", "Any"),
}
"""Options that take the place of what every ClusterQueue states."""
_FIELDS = dict(zip(_CHANGES, ("strategy", "within", "reclaim"), strict=True))
_LOGGER = logging.getLogger(__name__)
_COMMAND = "kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o json"
_NO_CANDIDATES, _PREEMPT, _RECLAIM, _FITS = range(4)
"""What becomes of a job in a flavor, the better the greater."""


class _FlavorFit(NamedTuple):
    """The fit of a job in a flavor of its queue.

    `borrowing`: how far up quota is found; 0 for its own. `flavor, targets`: the flavor, and the jobs that are
    preempted.
    """

    mode: int
    borrowing: int
    flavor: str
    targets: list[Admitted]

    @property
    def worth(self) -> tuple[int, int]:
        """What is greater is better."""
        return self.mode, -self.borrowing


@dataclass(slots=True)
class _KueueScheduler(RigidScheduler):
    policy = "kueue"
    queues: KueueQueues
    digest: str
    admitted: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The flavor of each job that runs, and since when."""
    pools: dict[str, frozenset[int]] = field(init=False)
    """Numbers of the pools that are of no type of each flavor."""
    tree: QuotaTree = field(init=False)
    """Quotas with nothing in use."""

    def __post_init__(self) -> None:
        self.tree = QuotaTree(self.queues)
        flavors = (flavor for node in self.queues.queues.values() for flavor in node.quotas)
        self.pools = {flavor: self._pools_without(flavor) for flavor in flavors}

    def refuses(self, job: TraceJob) -> str | None:
        name = self.queue_of(job)
        if name is None or name not in self.queues.queues:
            known = ", ".join(list(self.queues.queues)[:_SHOWN])
            return (
                f"policy 'kueue': job {job.name!r} is of queue {job.queue!r}, which the file has neither as LocalQueue"
                f" nor as ClusterQueue; there are {known}"
            )
        node = self.tree.queues[name]
        most = max((node.most(quota) for quota in node.stated.quotas if self.may_have(job, quota)), default=0)
        if most < job.gpus:
            return (
                f"policy 'kueue': job {job.name!r} asks for {job.gpus} GPUs and ClusterQueue {name!r} may have {most}"
            )
        return RigidScheduler.refuses(self, job)

    def queue_of(self, job: TraceJob) -> str | None:
        """Return the ClusterQueue of a job."""
        if job.queue is None and len(self.queues.queues) == 1:
            return next(iter(self.queues.queues))
        return self.queues.local.get(job.queue or "", job.queue)

    def may_have(self, job: TraceJob, flavor: str) -> bool:
        """Return whether a job can run on a type of a flavor."""
        pools = (pool for group in self.setting.pool_choice.of(job) for pool in group)
        return any(pool.number not in self.pools[flavor] for pool in pools)

    def decide(self, observation: Observation) -> Decision:
        for index in observation.adopted:
            active = observation.jobs[index]
            if active.share is not None:
                flavor = self._flavor_on(active.job, active.share)
                self.admitted[index] = flavor, observation.now_us - active.run_us
        return Decision(_Cycles(self, observation).shares())

    def _flavor_on(self, job: TraceJob, share: Share) -> str:
        """Return the first flavor of the queue of a job that the GPUs are of, or else the first one."""
        flavors = list(self.queues.queues[self.queue_of(job) or ""].quotas)
        number = self.setting.pool_of[share.gpus[0]].number
        return next((flavor for flavor in flavors if number not in self.pools[flavor]), flavors[0])

    def state(self) -> Plain:
        rows = [{"job": index, "flavor": flavor, "since_us": since} for index, (flavor, since) in self.admitted.items()]
        return {"queues": self.digest, "admitted": rows}

    def restore(self, state: Plain, observation: Observation) -> None:
        row = fields(job=whole(), flavor=TEXT, since_us=whole(observation.now_us))
        checked(state, fields(queues=TEXT, admitted=listed(row)))
        if state["queues"] != self.digest:
            raise ValueError("the quotas are other ones")
        self.admitted = {one["job"]: (one["flavor"], one["since_us"]) for one in state["admitted"]}
        for index in observation.running_as_decided:
            name = self.queue_of(observation.jobs[index].job)
            if index not in self.admitted or self.admitted[index][0] not in self.queues.queues[name or ""].quotas:
                raise ValueError("every job that runs has a flavor of its queue")

    def _pools_without(self, flavor: str) -> frozenset[int]:
        """Return the pools of other types than those of a flavor."""
        types = dict.fromkeys(pool.gpu_type for pool in self.setting.pools)
        labels = self.queues.labels.get(flavor, {})
        words = (flavor, *labels.values())
        own = {found for word in words for found in matching_types(word, types)}
        if not own and (not labels or len(types) == 1):
            own = set(types)  # a flavor without labels is of all nodes
        if not own:
            raise UsageError(
                f"flavor {flavor!r} is of no type of GPU of the cluster: its labels are {', '.join(labels.values())},"
                f" and the types {', '.join(types)}",
                code="mismatch",
                path="policy",
            )
        return frozenset(pool.number for pool in self.setting.pools if pool.gpu_type not in own)


def _turn(active: JobState) -> tuple[int, int, int]:
    """Return the place of a job in its queue: by priority, and then by when it was submitted."""
    return -(active.job.priority or 0), active.job.submit_us, active.index


class _Cycles:
    """Kueue's scheduling cycles at one time, until no further job is admitted."""

    def __init__(self, scheduler: _KueueScheduler, observation: Observation) -> None:
        self._own, self._observation = scheduler, observation
        self._tree = QuotaTree(scheduler.queues)
        self._free = FreeGpus(scheduler.setting, observation.shares, observation.down, observation.dead)
        self._gpus = {index: share.gpus for share in observation.shares for index in share.jobs}
        self._running = {index: self._admitted(index, *scheduler.admitted[index]) for index in self._gpus}
        for one in self._running.values():
            one.use()
        waiting = (active for active in observation.jobs.values() if active.index not in self._gpus)
        self._waiting: defaultdict[str, list[JobState]] = defaultdict(list)
        for active in sorted(waiting, key=_turn):
            self._waiting[scheduler.queue_of(active.job) or ""].append(active)
        self._hopeless: set[object] = set()
        self._evicted: set[int] = set()

    def shares(self) -> tuple[Share, ...]:
        """Return what runs from now on."""
        while self._cycle():
            pass
        self._own.admitted = {index: (one.flavor, one.since_us) for index, one in self._running.items()}
        return tuple(Share((index,), self._gpus[index]) for index in self._running)

    def _admitted(self, index: int, flavor: str, since_us: int) -> Admitted:
        active = self._observation.jobs[index]
        return Admitted(active, self._tree.queues[self._own.queue_of(active.job) or ""], flavor, since_us)

    # One cycle ----------------------------------------------------------------------------------------------

    def _cycle(self) -> bool:
        """Look at the first job of every queue once; return whether another cycle may admit more."""
        heads = [(queue, active) for name, queue in self._tree.queues.items() for active in self._head(name)]
        entries = [(queue, active, self._assign(queue, active)) for queue, active in heads]
        entries.sort(key=lambda entry: (entry[2].borrowing, _turn(entry[1])))
        reserved: list[tuple[UsageNode, str, int]] = []
        taken: set[int] = set()
        more = False
        for queue, active, assignment in entries:
            if assignment.mode == _NO_CANDIDATES:
                reserved += self._reserve(queue, active, assignment)
                more |= self._give_up(queue, active)
                continue
            targets = {one.active.index for one in assignment.targets}
            if not taken & targets and self._admit(queue, active, assignment):  # else it is looked at again
                taken |= targets
                more = True
        for queue, flavor, gpus in reserved:
            queue.remove(flavor, gpus)
        return more

    def _head(self, name: str) -> Iterator[JobState]:
        """Yield the job of a queue that is looked at, if any: under StrictFIFO always the first."""
        strict = self._tree.queues[name].stated.strategy == "StrictFIFO"
        waiting = self._waiting[name]
        yield from islice((entry for entry in waiting if strict or self._key(name, entry) not in self._hopeless), 1)

    def _key(self, name: str, active: JobState) -> object:
        """Return what equal jobs have in common: where one does not fit, the later ones do not."""
        job = active.job
        return name, job.gpus, job.priority or 0, self._own.setting.pool_choice.of(job)

    def _give_up(self, queue: UsageNode, active: JobState) -> bool:
        """Note that a job is not admitted as things are; return whether that leads to another job of its queue."""
        key = self._key(queue.stated.name, active)
        fresh = key not in self._hopeless
        self._hopeless.add(key)
        return fresh and queue.stated.strategy != "StrictFIFO"

    def _reserve(self, queue: UsageNode, active: JobState, assignment: _FlavorFit) -> list[tuple[UsageNode, str, int]]:
        """Keep quota for a job that waits for the end of others, where its queue cannot always reclaim its own.

        So in this cycle no other queue borrows what the job waits for.
        """
        flavor, gpus = assignment.flavor, active.job.gpus
        if not flavor or queue.stated.reclaim == "Any":
            return []
        quota, used = queue.quota(flavor), queue.usage[flavor]
        if assignment.borrowing:
            left = gpus if quota.borrowing is None else min(gpus, quota.nominal + quota.borrowing - used)
        else:
            left = min(gpus, quota.nominal - used)
        if left <= 0:
            return []
        queue.add(flavor, left)
        return [(queue, flavor, left)]

    def _admit(self, queue: UsageNode, active: JobState, assignment: _FlavorFit) -> bool:
        """Admit a job, in the place of those that it preempts; return whether it still fits."""
        flavor, gone = assignment.flavor, assignment.targets
        for one in gone:
            one.free()
        free, gpus = self._place(active, flavor, gone)
        if gpus is None or active.job.gpus > queue.available(flavor):
            for one in gone:
                one.use()
            return False
        for one in gone:
            del self._running[one.active.index], self._gpus[one.active.index]
            self._evicted.add(one.active.index)
            insort(self._waiting[one.queue.stated.name], one.active, key=_turn)
        if gone:
            self._hopeless.clear()
        self._free = free
        self._waiting[queue.stated.name].remove(active)
        self._gpus[active.index] = gpus
        self._running[active.index] = self._admitted(active.index, flavor, self._observation.now_us)
        self._running[active.index].use()
        return True

    # Flavors ------------------------------------------------------------------------------------------------

    def _assign(self, queue: UsageNode, active: JobState) -> _FlavorFit:
        """Return the flavor in which a job fits best; flavors are tried in order."""
        best = _FlavorFit(_NO_CANDIDATES, 0, "", [])
        for flavor in queue.stated.quotas:
            found = self._in_flavor(queue, active, flavor)
            if found is None:
                continue
            if not best.flavor or found.worth > best.worth:
                best = found
            tries_next = (found.mode < _FITS and not queue.stated.stops_at_preemption) or (
                found.borrowing > 0 and not queue.stated.stops_at_borrowing
            )
            if found.mode != _NO_CANDIDATES and not tries_next:
                return found
        return best

    def _in_flavor(self, queue: UsageNode, active: JobState, flavor: str) -> _FlavorFit | None:
        """Return how a job fits into a flavor; None where it never does."""
        gpus = active.job.gpus
        if gpus > queue.most(flavor) or not self._own.may_have(active.job, flavor):
            return None
        borrowing, may_reclaim = queue.distance_of_quota(flavor, gpus)
        if gpus <= queue.available(flavor) and self._place(active, flavor)[1] is not None:
            return _FlavorFit(_FITS, borrowing, flavor, [])
        if queue.quota(flavor).nominal < gpus and not may_reclaim and queue.stated.borrow == "Never":
            return _FlavorFit(_NO_CANDIDATES, borrowing, flavor, [])
        running = [one for index, one in self._running.items() if index not in self._evicted]
        targets = preemption_targets(
            active, queue, flavor, running, lambda gone: self._place(active, flavor, gone)[1] is not None
        )
        if not targets:
            return _FlavorFit(_NO_CANDIDATES, borrowing, flavor, [])
        for one in targets:
            one.free()
        borrowing = queue.distance_of_quota(flavor, gpus)[0]
        for one in targets:
            one.use()
        mode = _PREEMPT if any(one.queue is queue for one in targets) else _RECLAIM
        return _FlavorFit(mode, borrowing, flavor, targets)

    def _place(
        self, active: JobState, flavor: str, gone: Iterable[Admitted] = ()
    ) -> tuple[FreeGpus, tuple[int, ...] | None]:
        """Return GPUs for a job once some others are gone, and what then is free; None for too few."""
        free = self._free.copy()
        for one in gone:
            free.add(self._gpus[one.active.index])
        return free, free.place(active.job, self._own.options["placement"], self._own.pools[flavor])


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _KueueScheduler:
    path = options["config"]
    if path == _NONE:
        raise missing_option("policy", f"policy 'kueue' needs the quotas: kueue:config=FILE, the output of {_COMMAND}")
    data = read_text(path)
    found = read_kueue(data, path)
    if told := [f"{remark}: {count}" for remark, count in found.remarks.items() if count]:
        _LOGGER.warning("%s: %s", path, "; ".join(told))
    queues = {name: _changed(node, options) for name, node in found.queues.items()}
    digest = hashlib.sha256(data).hexdigest()
    return _KueueScheduler(setting, options, replace(found, queues=queues), digest)


def _changed(node: QuotaNode, options: Mapping[str, str]) -> QuotaNode:
    """Return a ClusterQueue as the options change it."""
    changes = {field: options[name] for name, field in _FIELDS.items() if options[name] != _NONE}
    return replace(node, **changes)  # type: ignore[arg-type]


KUEUE = NamedPolicy(
    "kueue",
    "Kueue: quotas by queue and GPU type, borrowed within cohorts, with preemption",
    _start,
    {"config": file_names(), **_CHANGES, "placement": PLACEMENTS},
    frozenset({"queue", "priority", "preemptible"}),
)
