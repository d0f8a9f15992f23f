"""Facts of an instance that proofs use: least times of jobs over all placements and levels that the rules allow."""

from __future__ import annotations

from jigsaw_opt.problem.instance import Instance


class Facts:
    """Facts of one instance, each worked out once, when an argument first asks for it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.objective, self.finite = instance.objective, instance.horizon == "finite"
