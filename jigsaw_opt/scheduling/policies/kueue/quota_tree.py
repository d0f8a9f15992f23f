"""Quotas in a tree of cohorts, as Kueue counts them: who may still use how much, by borrowing from whom.

A ClusterQueue is a leaf. What it uses beyond what it never lends counts in its cohort, and so on up to the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jigsaw_opt.documents.readers.kubernetes.kueue import GpuQuota, KueueQueues, QuotaNode

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
