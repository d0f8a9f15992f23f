"""Quotas in a tree of cohorts, as Kueue counts them, and whom a job preempts: Kueue's classic preemption.

A ClusterQueue is a leaf. What it uses beyond what it never lends counts in its cohort, and so on up to the root.

Source: "Preemption", kueue.sigs.k8s.io. Jobs of other ClusterQueues are preempted only while these use more than their
quota. Those come first over which the incoming job has an advantage, as its own part of the tree has the quota for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from jigsaw_opt.documents.readers.kubernetes.kueue import GpuQuota, KueueQueues, QuotaNode
from jigsaw_opt.scheduling.placement.placing import fewest_victims
from jigsaw_opt.scheduling.policy import JobState

_NEVER = "Never"
_NOTHING = GpuQuota(0)


class UsageNode:
    """A ClusterQueue or a cohort with its usage by flavor.

    `parent`: the cohort that it is in. `usage`: what counts against its quota, by flavor.
    """

    def __init__(self, stated: QuotaNode, parent: UsageNode | None) -> None:
        self.stated, self.parent = stated, parent
        self.children: list[UsageNode] = []
        self.usage = Counter[str]()
        self._subtree: dict[str, int] = {}
        if parent is not None:
            parent.children.append(self)

    def above(self) -> Iterator[UsageNode]:
        """Yield the cohorts that it is in, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def quota(self, flavor: str) -> GpuQuota:
        """Return its own quota."""
        return self.stated.quotas.get(flavor, _NOTHING)

    def subtree(self, flavor: str) -> int:
        """Return its quota together with what those in it lend."""
        if flavor not in self._subtree:
            lent = sum(child.subtree(flavor) - child.kept(flavor) for child in self.children)
            self._subtree[flavor] = self.quota(flavor).nominal + lent
        return self._subtree[flavor]

    def kept(self, flavor: str) -> int:
        """Return what it never lends."""
        lending = self.quota(flavor).lending
        return 0 if lending is None else max(0, self.subtree(flavor) - lending)

    def kept_free(self, flavor: str) -> int:
        """Return what is left of what it never lends."""
        return max(0, self.kept(flavor) - self.usage[flavor])

    def available(self, flavor: str) -> int:
        """Return how much more it may use now."""
        if self.parent is None:
            return self.subtree(flavor) - self.usage[flavor]
        above, borrowing = self.parent.available(flavor), self.quota(flavor).borrowing
        if borrowing is not None:
            lent = self.subtree(flavor) - self.kept(flavor)
            above = min(above, lent - max(0, self.usage[flavor] - self.kept(flavor)) + borrowing)
        return self.kept_free(flavor) + above

    def most(self, flavor: str) -> int:
        """Return how much it may use where nobody uses anything."""
        if self.parent is None:
            return self.subtree(flavor)
        most, borrowing = self.kept(flavor) + self.parent.most(flavor), self.quota(flavor).borrowing
        return most if borrowing is None else min(most, self.subtree(flavor) + borrowing)

    def borrows_with(self, flavor: str, gpus: int) -> bool:
        """Return whether this node uses more than its quota once it uses more GPUs."""
        return self.usage[flavor] + gpus > self.subtree(flavor)

    def add(self, flavor: str, gpus: int) -> None:
        """Count the use of more GPUs; what exceeds the part that is never lent counts in the parent too."""
        beyond = gpus - self.kept_free(flavor)
        self.usage[flavor] += gpus
        if self.parent is not None and beyond > 0:
            self.parent.add(flavor, beyond)

    def remove(self, flavor: str, gpus: int) -> None:
        """Count the use of fewer GPUs, the reverse of `add`."""
        beyond = self.usage[flavor] - self.kept(flavor)
        self.usage[flavor] -= gpus
        if self.parent is not None and beyond > 0:
            self.parent.remove(flavor, min(gpus, beyond))

    def height(self) -> int:
        """Return the distance to the furthest leaf."""
        return max((1 + child.height() for child in self.children), default=0)

    def distance_of_quota(self, flavor: str, gpus: int) -> tuple[int, bool]:
        """Return how far up the tree quota for more GPUs is found.

        0 is within its own quota; else it is the height of the cohort.

        0, or the height of the cohort that has the quota; and whether the node that has it is part of a larger cohort.
        """
        node, left = self, gpus
        while node.borrows_with(flavor, left):
            if node.parent is None:
                return node.height(), False
            left -= node.kept_free(flavor)
            node = node.parent
        return node.height(), node.parent is not None


class QuotaTree:
    """All ClusterQueues and cohorts; nothing is used at the beginning."""

    def __init__(self, queues: KueueQueues) -> None:
        made: dict[str, UsageNode] = {}

        def cohort(name: str) -> UsageNode | None:
            if name and name not in made:
                made[name] = UsageNode(queues.cohorts[name], cohort(queues.cohorts[name].parent))
            return made.get(name)

        for name in queues.cohorts:
            cohort(name)
        self.queues = {name: UsageNode(node, cohort(node.parent)) for name, node in queues.queues.items()}


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that runs.

    `flavor`: the flavor whose quota it uses.
    """

    active: JobState
    queue: UsageNode
    flavor: str
    since_us: int

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.active.job.priority or 0

    def use(self) -> None:
        """Count its GPUs."""
        self.queue.add(self.flavor, self.active.job.gpus)

    def free(self) -> None:
        """Count its GPUs no more."""
        self.queue.remove(self.flavor, self.active.job.gpus)


@dataclass(frozen=True, slots=True)
class _PreemptionCandidate:
    """A job that may be preempted.

    `common`: the nearest cohort that its queue and that of the incoming job are both in; None within one queue.
    `also_to_borrow`: whether it may be preempted by a job that then borrows.
    """

    one: Admitted
    common: UsageNode | None
    also_to_borrow: bool

    def is_over_quota(self) -> bool:
        """Return whether its queue, and what it is in below the common cohort, use more than their quota."""
        below = takewhile(lambda node: node is not self.common, (self.one.queue, *self.one.queue.above()))
        return self.common is None or all(node.borrows_with(self.one.flavor, 0) for node in below)


def preemption_targets(
    incoming: JobState,
    queue: UsageNode,
    flavor: str,
    running: Sequence[Admitted],
    has_room: Callable[[list[Admitted]], bool],
) -> list[Admitted]:
    """Return the jobs that are preempted for an incoming one; none where that does not make it fit."""
    own, hierarchy, by_priority = _candidates(incoming, queue, flavor, running)
    gpus, may_borrow = incoming.job.gpus, queue.stated.borrow != _NEVER
    under_nominal = queue.usage[flavor] < queue.quota(flavor).nominal
    if not (hierarchy or by_priority) or not (may_borrow or under_nominal):
        attempts = [True]
    elif not may_borrow and not hierarchy:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for borrowing in attempts:

        def fits(gone: list[Admitted], borrowing: bool = borrowing) -> bool:
            if not borrowing and queue.borrows_with(flavor, gpus):
                return False
            return gpus <= queue.available(flavor) and has_room(gone)

        found = _fewest([*hierarchy, *by_priority, *own], borrowing, fits)
        if found:
            return found
    return []


def _fewest(
    candidates: Sequence[_PreemptionCandidate], borrowing: bool, fits: Callable[[list[Admitted]], bool]
) -> list[Admitted]:
    """Return candidates taken in order until the incoming job fits, less those without which it still does.

    The usage of all is as before afterwards.
    """
    each = (one for one in candidates if (one.also_to_borrow or not borrowing) and one.is_over_quota())
    gone = fewest_victims((candidate.one for candidate in each), Admitted.free, Admitted.use, fits)
    for one in gone:
        one.use()
    return gone


def _candidates(
    incoming: JobState, queue: UsageNode, flavor: str, running: Sequence[Admitted]
) -> tuple[list[_PreemptionCandidate], list[_PreemptionCandidate], list[_PreemptionCandidate]]:
    """Return the candidates of the own queue, those over which there is an advantage, and the other ones."""
    by_queue: dict[int, list[Admitted]] = {}
    for one in sorted(running, key=lambda one: (one.priority, -one.since_us, -one.active.index)):
        if one.flavor == flavor and one.active.job.preemptible is not False:
            by_queue.setdefault(id(one.queue), []).append(one)
    own = [
        _PreemptionCandidate(one, None, True)
        for one in by_queue.get(id(queue), ())
        if _may(queue.stated.within, incoming, one)
    ]
    hierarchy, by_priority = list[_PreemptionCandidate](), list[_PreemptionCandidate]()
    if queue.stated.reclaim == _NEVER:
        return own, hierarchy, by_priority
    left, before = incoming.job.gpus, queue
    advantage = not queue.borrows_with(flavor, left)
    for common in queue.above():
        left = max(0, left - before.kept_free(flavor))
        found = [
            _PreemptionCandidate(one, common, advantage or _also_to_borrow(queue, incoming, one))
            for leaf in _leaves_over_quota(common, before, flavor)
            for one in by_queue.get(id(leaf), ())
            if _may(queue.stated.reclaim, incoming, one)
        ]
        (hierarchy if advantage else by_priority).extend(found)
        advantage = advantage or not common.borrows_with(flavor, left)
        before = common
    for those in (hierarchy, by_priority):
        those.sort(key=lambda victim: (victim.one.priority, -victim.one.since_us, -victim.one.active.index))
    return own, hierarchy, by_priority


def _leaves_over_quota(cohort: UsageNode, without: UsageNode, flavor: str) -> list[UsageNode]:
    """Return the ClusterQueues of a cohort, but for a part of it, that use more than their quota, as all between do."""
    found: list[UsageNode] = []
    for child in cohort.children:
        if child is not without and child.borrows_with(flavor, 0):
            found += _leaves_over_quota(child, without, flavor) if child.children else [child]
    return found


def _may(policy: str, incoming: JobState, one: Admitted) -> bool:
    """Return whether a policy lets an incoming job preempt one that runs."""
    priority = incoming.job.priority or 0
    if policy == "LowerOrNewerEqualPriority" and priority == one.priority:
        return (incoming.job.submit_us, incoming.index) < (one.active.job.submit_us, one.active.index)
    return policy == "Any" or (policy != _NEVER and priority > one.priority)


def _also_to_borrow(queue: UsageNode, incoming: JobState, one: Admitted) -> bool:
    """Return whether a job without advantage may preempt one in order to borrow."""
    threshold = queue.stated.threshold
    if queue.stated.borrow == _NEVER or one.priority >= (incoming.job.priority or 0):
        return False
    return threshold is None or one.priority <= threshold
