"""Fair share as Slurm's documentation defines it: Fair Tree, and the classic formula of effective usage.

Sources: "Fair Tree Fairshare Algorithm" and "Classic Fairshare Algorithm", slurm.schedmd.com. Accounts form a tree
whose leaves are users. Every account and user has shares among its siblings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

from jigsaw_opt.documents.readers.slurm.priorities import Association

UserKey = tuple[str, str]
"""An account and a user in it."""
_ROOT = "root"
_DEFAULT_SHARES = 1


@dataclass(slots=True)
class _ShareNode:
    """An account or a user.

    `shares`: its shares among its siblings; None where it is served as its parent is. `key`: the user, or None for an
    account.
    """

    shares: int | None
    key: UserKey | None = None
    children: list[_ShareNode] = field(default_factory=list)

    def usage(self, used: Mapping[UserKey, float]) -> float:
        """Return what all its users have used."""
        own = 0.0 if self.key is None else used.get(self.key, 0.0)
        return own + sum(child.usage(used) for child in self.children)


class ShareTree:
    """The accounts and users of a cluster with their shares. Who is not stated has one share, Slurm's default."""

    def __init__(self, associations: Iterable[Association] = ()) -> None:
        self._root = _ShareNode(_DEFAULT_SHARES)
        self._accounts = {_ROOT: self._root, "": self._root}
        self._users: dict[UserKey, _ShareNode] = {}
        stated = tuple(associations)
        self._stated = {one.account: one for one in stated if not one.user}
        for name in self._stated:
            self._account(name)
        for one in stated:
            if one.user:
                self._add((one.account, one.user), one.shares)

    def _account(self, name: str) -> _ShareNode:
        """Return the account of a name, with those above it."""
        if name not in self._accounts:
            own = self._stated.get(name, Association(name, "", _ROOT, _DEFAULT_SHARES))
            parent = self._account(own.parent)
            if own.shares is None:  # its children count as those of its parent
                self._accounts[name] = parent
            else:
                self._accounts[name] = _ShareNode(own.shares)
                parent.children.append(self._accounts[name])
        return self._accounts[name]

    def include(self, key: UserKey) -> None:
        """Have a user in the tree."""
        if key not in self._users:
            self._add(key, _DEFAULT_SHARES)

    def _add(self, key: UserKey, shares: int | None) -> None:
        self._users[key] = _ShareNode(shares, key)
        self._account(key[0]).children.append(self._users[key])

    # Classic ------------------------------------------------------------------------------------------------

    def classic(self, used: Mapping[UserKey, float], dampening: int = 1) -> dict[UserKey, float]:
        """Return the factor ``2 ** (-UE / S / d)`` of every user, by effective usage UE and normalised shares S."""
        total = self._root.usage(used)
        found: dict[UserKey, float] = {}

        def visit(parent: _ShareNode, shares: float, effective: float) -> None:
            siblings = sum(child.shares or 0 for child in parent.children)
            for child in parent.children:
                if child.shares is None:
                    own_shares, own = shares, effective
                else:
                    part = child.shares / siblings if siblings else 0.0
                    own_shares, own = shares * part, child.usage(used) / total if total else 0.0
                    if parent is not self._root:  # of the first tier the effective usage is the actual one
                        own += (effective - own) * part
                if child.key is None:
                    visit(child, own_shares, own)
                else:
                    found[child.key] = 2 ** (-own / own_shares / dampening) if own_shares else 0.0

        visit(self._root, 1.0, 1.0 if total else 0.0)
        return found

    # Fair Tree ----------------------------------------------------------------------------------------------

    def fair_tree(self, used: Mapping[UserKey, float]) -> dict[UserKey, float]:
        """Return the rank of every user in the ordered tree, as a part of the number of users."""
        ranks: dict[UserKey, float] = {}
        users, behind = len(self._users), len(self._users)
        rank = behind

        def level(parent: _ShareNode) -> list[tuple[float, _ShareNode]]:
            siblings = sum(child.shares or 0 for child in parent.children)
            usage = parent.usage(used)
            return [(_level_fair_share(child, siblings, usage, used), child) for child in parent.children]

        def visit(nodes: list[tuple[float, _ShareNode]], tied: bool) -> None:
            """Rank users in order; `tied` says that the first ones have the rank of the user before."""
            nonlocal rank, behind
            nodes.sort(key=lambda one: (-one[0], one[1].key is None))
            for _, group in groupby(nodes, key=lambda one: one[0]):
                equal = [node for _, node in group]
                for node in equal:
                    if node.key is not None:
                        rank = rank if tied else behind
                        ranks[node.key] = rank / users
                        behind, tied = behind - 1, True
                below = [one for node in equal if node.key is None for one in level(node)]
                if below:
                    visit(below, tied)
                tied = False

        visit(level(self._root), False)
        return ranks


def _level_fair_share(node: _ShareNode, siblings: int, usage: float, used: Mapping[UserKey, float]) -> float:
    """Return S / U of a node: its part of the shares of its level by its part of the usage there."""
    if node.shares is None:
        return inf
    own = node.usage(used)
    if node.shares == 0:
        return 0.0
    return inf if own == 0 else (node.shares / siblings) / (own / usage)
