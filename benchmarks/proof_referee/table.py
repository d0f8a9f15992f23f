"""Variables with their least and largest values, linear rows of them, and the operations that may use a resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .common import Document, need

Name = tuple
"""A name of a variable, with tuples in place of lists."""
Term = tuple[int, Name]
"""A factor and a variable."""


class Operation(NamedTuple):
    """A block or a transfer that may use a resource."""

    job: int
    iteration: int
    part: str | int  # GPU, bucket, or name in a task graph
    present: Name
    start: Name
    done: Name
    length: Name


class Gpu(NamedTuple):
    """A GPU of the cluster."""

    name: str
    server: Document


class Table:
    """Variables with their values, rows, and operations by resource, of an instance and a limit."""

    def __init__(self, instance: Document, limit: int, each: bool) -> None:
        self.each, self.limit, self.cyclic = each, limit, instance["horizon"] == "cyclic"
        self.horizon = 2 * limit if self.cyclic else limit
        self.cluster = instance["cluster"]
        servers = self.cluster["servers"]
        need(sum(server["gpus"] for server in servers) <= 60000, "there are more than 60000 GPUs")
        self.gpus = [Gpu(f"{server['name']}/{k}", server) for server in servers for k in range(server["gpus"])]
        self.largest_memory = max(server["gpu_memory"] for server in servers)
        self.values: dict[Name, tuple[int, int]] = {}
        self.rows: list[tuple[dict[Name, int], int]] = []
        self.terms = 0
        self.resources: defaultdict[str, list[Operation]] = defaultdict(list)

    def most(self, terms: Iterable[Term], most: int) -> None:
        """Add the row that a sum is at most a number."""
        row: dict[Name, int] = defaultdict(int)
        for factor, name in terms:
            row[name] += factor
        self.rows.append(({name: factor for name, factor in row.items() if factor}, most))
        self.terms += len(self.rows[-1][0])
        need(len(self.rows) <= 60000 and self.terms <= 600_000, "there are too many rows, or variables in them")

    def equal(self, terms: Sequence[Term], value: int) -> None:
        """Add the two rows that a sum is a number."""
        self.most(terms, value)
        self.most([(-factor, name) for factor, name in terms], -value)
