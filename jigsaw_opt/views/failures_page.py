"""Effects of failures in words, and as one interactive HTML page: the cluster, and what each part does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import cos, pi, sin

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.failure_repair import FailureRepair
from jigsaw_opt.solvers.failures import Failure
from jigsaw_opt.solvers.resolve.failures import FailureEffect
from jigsaw_opt.text import agreeing, counted, named, printable
from jigsaw_opt.views.page import filled

OBJECTIVES = {
    "makespan": ("µs", "when the last job ends"),
    "weighted_completion": ("weight × µs", "the ends of all jobs, each times the weight of its job, added up"),
    "period": ("µs", "the time in which each job does one iteration, over and over"),
}
"""Unit and meaning of each objective; less is better."""
SEVERITIES = ("no job is touched", "jobs are rerouted", "jobs stop", "guarantees break")


def severity(effect: FailureEffect) -> int:
    """Return the index of the worst that a failure does, among those that the page has colours for."""
    return 3 if effect.broken else 2 if effect.stopped else 1 if effect.rerouted else 0


def rank(effect: FailureEffect) -> tuple[int, ...]:
    """Return the rank of a failure, greater is worse: broken guarantees, then stopped jobs, then cost."""
    cost = 0 if effect.stopped or effect.objective is None else effect.objective
    return severity(effect), len(effect.broken), len(effect.stopped), cost, len(effect.rerouted)


def worst_first(found: Iterable[Failure]) -> list[Failure]:
    """Return the effects with their repairs, in the order of `rank`; those alike stay in theirs."""
    return sorted(found, key=lambda failure: rank(failure.effect), reverse=True)


class FailureDescription:
    """Words for failures of one plan."""

    def __init__(self, instance: Instance, objective: int) -> None:
        self._objective, self._jobs = objective, len(instance.jobs)
        self._name = instance.objective.replace("_", " ")
        self._unit, self._meaning = OBJECTIVES[instance.objective]

    def plan(self) -> str:
        """Return the objective of the plan, and what that is."""
        return f"{self._name} of the plan: {self._amount(self._objective)} ({self._meaning}; less is better)"

    def worst(self, effects: Sequence[FailureEffect]) -> str:
        """Return the worst failure of a single part, in a sentence, and those that are as bad."""
        single = sorted((effect for effect in effects if len(effect.failed) == 1), key=rank, reverse=True)
        if not single or not severity(single[0]):
            return "No single failure touches a job."
        change = "" if single[0].stopped else f"{self._name} {self.outcome(single[0])}; "
        same = [self.failed(effect) for effect in single[1:] if rank(effect) == rank(single[0])]
        others = f" As bad: {named(same)}." if same else ""
        return f"The worst single failure is {self.failed(single[0])}: {change}{self.happens(single[0])}.{others}"

    def failed(self, effect: FailureEffect) -> str:
        """Return what failed."""
        return " + ".join(f"{part.kind} {printable(part.name)}" for part in effect.failed)

    def happens(self, effect: FailureEffect) -> str:
        """Return what becomes of the jobs."""
        return "; ".join(self._parts(effect)) or "no job is touched"

    def _parts(self, effect: FailureEffect) -> Iterator[str]:
        for names, one, several in (
            (effect.stopped, "stops", "stop"),
            (effect.broken, "misses its deadline or cycle-time limit", "miss their deadline or cycle-time limit"),
            (list(effect.rerouted), "is rerouted", "are rerouted"),
        ):
            if names:
                verb = agreeing(len(names), one, several)
                yield f"{len(names):,} of {counted(self._jobs, 'job')} {verb}: {named(names)}"

    def outcome(self, effect: FailureEffect) -> str:
        """Return the objective with the order kept; without a change where jobs are missing from it."""
        left = self._jobs - len(effect.stopped)
        if effect.objective is None:
            return "the order does not repeat" if left else "no job is left"
        if effect.stopped:
            return f"{self._amount(effect.objective)} for the {counted(left, 'job')} left"
        return self._changed(effect.objective)

    def repair(self, repair: FailureRepair) -> str:
        """Return the objective of a repaired plan; without a change where jobs are missing from it."""
        if repair.objective is None:
            return f"no plan: {repair.status}"
        if not repair.unplaced:
            return self._changed(repair.objective)
        missing, left = list(repair.unplaced), self._jobs - len(repair.unplaced)
        return f"no place for {named(missing)}; {self._amount(repair.objective)} for the {counted(left, 'job')} left"

    def _amount(self, objective: int) -> str:
        return f"{objective:,} {self._unit}"

    def _changed(self, objective: int) -> str:
        if objective == self._objective:
            return f"{self._amount(objective)} (unchanged)"
        change = f"{100 * (objective / max(1, self._objective) - 1):+.1f} %"
        return f"{self._amount(objective)} ({change.replace('-', '−')})"


def failures_html(instance: Instance, objective: int, found: Iterable[Failure]) -> str:
    """Return the page: servers, switches and links in the colour of what their failure does at worst, and a table.

    Names from the instance are data to the page and never markup.
    """
    places, words = positions(instance.cluster), FailureDescription(instance, objective)
    ranked = worst_first(found)
    servers = {server.name for server in instance.cluster.servers}
    return filled(
        "failures.html",
        f"failures of {instance.name}",
        {
            "name": printable(instance.name),
            "objectiveName": instance.objective.replace("_", " "),
            "worst": words.worst([effect for effect, _ in ranked]),
            "plan": words.plan(),
            "severities": SEVERITIES,
            "nodes": [
                {"name": printable(name), "kind": "server" if name in servers else "switch", "x": x, "y": y}
                for name, (x, y) in places.items()
            ],
            "links": [
                {"name": printable(link.name), "ends": [*places[link.ends[0]], *places[link.ends[1]]]}
                for link in instance.cluster.links
            ],
            "effects": [_told(words, effect, repair) for effect, repair in ranked],
        },
    )


def positions(cluster: Cluster) -> dict[str, tuple[float, float]]:
    """Return for each name of a server or switch its place in the unit square, the top at 0.

    Servers are at the bottom and each switch so many rows above as links lead to the nearest server, in each row in the
    order of their neighbours below. Without switches, servers are on a circle.
    """
    names = [server.name for server in cluster.servers]
    if not cluster.switches:
        turn = 2 * pi / len(names)
        return {name: (0.5 - sin(k * turn) / 2, 0.5 - cos(k * turn) / 2) for k, name in enumerate(names)}
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for first, second in (link.ends for link in cluster.links):
        neighbours[first].append(second)
        neighbours[second].append(first)
    rows = list(_rows(names, cluster.switches, neighbours))
    across: dict[str, float] = {}
    for row in rows:
        below = {name: [across[neighbour] for neighbour in neighbours[name] if neighbour in across] for name in row}
        order = sorted(row, key=lambda name: sum(below[name]) / max(1, len(below[name])))
        across |= {name: (k + 0.5) / len(row) for k, name in enumerate(order)}
    tall = max(1, len(rows) - 1)
    return {name: (across[name], 1 - height / tall) for height, row in enumerate(rows) for name in row}


def _rows(
    servers: Sequence[str], switches: Sequence[str], neighbours: Mapping[str, Sequence[str]]
) -> Iterator[list[str]]:
    """Yield servers, then switches by the number of links to the nearest server; unreached ones come last."""
    row, left = list(servers), dict.fromkeys(switches)
    while row:
        yield row
        row = [
            name
            for name in dict.fromkeys(neighbour for below in row for neighbour in neighbours[below])
            if name in left
        ]
        for name in row:
            del left[name]
    if left:
        yield list(left)


def _told(words: FailureDescription, effect: FailureEffect, repair: FailureRepair | None) -> dict[str, object]:
    slowest = effect.slowest
    told: dict[str, object] = {
        "parts": [f"{part.kind} {printable(part.name)}" for part in effect.failed],
        "failed": words.failed(effect),
        "severity": severity(effect),
        "happens": words.happens(effect),
        "objective": words.outcome(effect),
        "slowest": printable(f"{slowest[0]} {slowest[1].transfer}: {slowest[1].old_us:,} to {slowest[1].new_us:,} µs")
        if slowest is not None
        else "",
        **{name: list(map(printable, getattr(effect, name))) for name in ("stopped", "broken", "rerouted")},
    }
    if repair is not None:
        told["repaired"] = words.repair(repair)
    return told
