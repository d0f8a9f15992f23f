"""The kind of argument `intervals` and the rows `fragments` (docs/proofs.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .common import Document, fields, kind, need, up
from .data_parallel import ROWS, facts_of
from .demands import Demand, demand, placements
from .facts import JobFacts
from .resources import Resource


def _resource(instance: Document, stated: Any) -> Resource:
    resource = Resource(instance, stated)
    need(resource.kind in ("gpus", "links"), "the resource is neither GPUs nor links")
    return resource


def _fragments(instance: Document, row: Document, _: object) -> tuple[dict[str, int], Fraction]:
    fields(row, {"kind": str, "resource": dict, "sets": list}, "row")
    resource = _resource(instance, row["resource"])
    m, right, coefficients = resource.capacity, Fraction(0), defaultdict[str, int](int)
    known: dict[str, list[tuple[int, int, int]]] = {}
    for some in row["sets"]:
        fields(some, {"head": int, "jobs": dict, "multiplier": int}, "set")
        y, chosen = some["multiplier"], []
        need(y >= 1 and some["head"] >= 0 and bool(some["jobs"]), "a number of a set is too small, or it has no jobs")
        for name, number in some["jobs"].items():
            if name not in known:
                known[name] = _of_job(instance, resource, facts_of(instance, name))
            late = [fragment for fragment in known[name] if fragment[0] >= some["head"]]
            need(type(number) is int and 1 <= number <= len(late), f"{name} has no {number} fragments")
            chosen += late[:number]
            coefficients[name] += y * 2 * m * sum(work for _, work, _ in late[:number])
        W = sum(work for _, work, _ in chosen)
        right += y * (2 * m * min(head for head, *_ in chosen) * W + W * W + m * sum(offset for *_, offset in chosen))
    return coefficients, right


ROWS["fragments"] = _fragments


def _of_job(instance: Document, resource: Resource, job: JobFacts) -> list[tuple[int, int, int]]:
    """Return head, work and offset of all fragments of a job, by falling offset per work."""
    whole, n, found = demand(resource, job, as_a_whole=True), job.n, []
    if whole is None:
        return []
    v = min(n, max(1, 2000 // sum("model" in one for one in instance["jobs"])))
    F, (rate, room, x0, z0) = whole.rest(n), whole.room
    R = rate * room
    for i in range(v):
        f, g = n * i // v, n * (i + 1) // v
        y = job.iteration * (2 * n - f - g - 1)
        for u, a, x, z in whole.spans:
            k = min(12 if g - f == 1 else 1, a)
            for part in range(k):
                s, t = a * part // k, a * (part + 1) // k
                W = (g - f) * u * (t - s)
                found.append((job.release + f * job.iteration + x + s, W, W * (2 * (z + a) - s - t + y)))
        A = min(F, g * R) - f * R
        if A > 0:
            b, c = divmod(A, R)
            head = job.release + x0 + (F - f * R - A) // R * job.iteration
            found.append((head, A, job.iteration * (R * b * (2 * f + b - 1) + 2 * c * (f + b)) + 2 * z0 * A))
    return sorted((one for one in found if one[1]), key=lambda one: Fraction(-one[2], one[1]))


@kind("intervals", denominator=int, rows=list, resources=list, intervals=list)
def _intervals(instance: Document, argument: Document) -> int:
    need(instance["objective"] == "weighted_completion", "intervals bound weighted_completion alone")
    N = argument["denominator"]
    need(N >= 1, "the denominator is below 1")
    jobs = [JobFacts(instance, job) for job in instance["jobs"] if "model" in job]
    left = {job.job["name"]: N * job.job["weight"] for job in jobs if job.known}
    value = Fraction(0)
    for row in argument["rows"]:
        need(type(row) is dict and row.get("kind") in list(ROWS), "there is no such kind of row")
        coefficients, right = ROWS[row["kind"]](instance, row, left)
        for name, a in coefficients.items():
            left[name] -= a
        value += right
    need(all(weight >= 0 for weight in left.values()), "the multipliers of a job are more than its weight")
    resources = [_resource(instance, stated) for stated in argument["resources"]]
    for stated in argument["intervals"]:
        need(type(stated) is list and [type(one) for one in stated] == [int] * 4, "an interval is no four integers")
        k, s, t, y = stated
        need(0 <= k < len(resources) and 0 <= s < t and y >= 1, "an interval is wrong")
        value -= y * resources[k].capacity * (t - s)
    for job in (one for one in jobs if one.known):
        weight = left[job.job["name"]]
        value += min(_least(instance, argument, resources, job, one, weight) for one in placements(instance, job))
    return up(value / N)


def _least(
    instance: Document, argument: Document, resources: list[Resource], whole: JobFacts, job: JobFacts, weight: int
) -> int:
    """Return the least sum of weight times end and all charges of a kind of placement."""
    first = max(job.completion, whole.completion)
    as_a_whole = any("restart_us" in one for one in instance["jobs"] if "model" in one)
    works: list[tuple[Work, Work] | None] = []
    for resource in resources:
        found = demand(resource, job, as_a_whole)
        charged = found is not None and found.work != 0 and job.n * (len(found.spans) + 1) <= 1000
        works.append((Work(found, job, 2), Work(found, job, 3)) if found is not None and charged else None)
    sloped: defaultdict[int, int] = defaultdict(int)  # changes of the slope, at ends from the first one on
    value, slope = weight * first, weight
    for k, s, t, y in argument["intervals"]:
        if works[k] is not None:
            early, late = works[k]  # type: ignore[misc]
            here, changes = late.charge(max(0, early.total - early.at(s - job.release)), first - t)
            value += y * here
            for place, change in changes:
                sloped[place + t] += y * change
    least, place = value, first
    for after in sorted(sloped):
        value, place = value + slope * (after - place), after
        slope += sloped[after]
        least = min(least, value)
    return least


class Work:
    """How much of its work a job does at most within a time after its start, or before its end."""

    def __init__(self, of: Demand, job: JobFacts, distance: int) -> None:
        self.total = of.work
        in_spans, in_room = defaultdict[int, int](int), defaultdict[int, int](int)
        for i in range(job.n):
            for span, changes in [*((span, in_spans) for span in of.spans), (of.room, in_room)]:
                begin = i * job.iteration + span[distance]
                changes[begin] += span[0]
                changes[begin + span[1]] -= span[0]
        sure, more = _sums(in_spans), _sums(in_room)
        self.points: list[tuple[int, int]] = []
        rest = of.rest(job.n)
        places = sorted({place for place, _ in sure + more} | set(_reached(more, rest)))
        firsts, seconds = _values(sure, places), _values(more, places)
        self.points = [(place, a + min(rest, b)) for place, a, b in zip(places, firsts, seconds)]

    def at(self, time: int) -> int:
        """Return the work within a time."""
        return _values(self.points, [time])[0]

    def charge(self, most: int, first: int) -> tuple[int, list[tuple[int, int]]]:
        """Return `max(0, most - work)` at a time, and where from then on its slope changes by how much."""
        places = [first, *(place for place, _ in self.points if place > first)]
        places = sorted({*places, *(place for place in _reached(self.points, most) if place > first)})
        values = [max(0, most - work) for work in _values(self.points, places)]
        changes, slope = [], 0
        for a, b, one, other in zip(places, places[1:], values, values[1:]):
            rise = (other - one) // (b - a)
            assert rise * (b - a) == other - one
            if rise != slope:
                changes.append((a, rise - slope))
                slope = rise
        if slope:
            changes.append((places[-1], -slope))
        return values[0], changes


def _sums(changes: dict[int, int]) -> list[tuple[int, int]]:
    """Return places and values of the function that is 0 at first and whose slope changes so."""
    points: list[tuple[int, int]] = []
    value = slope = last = 0
    for place in sorted(changes):
        value, last = value + slope * (place - last), place
        points.append((place, value))
        slope += changes[place]
    return points


def _reached(points: list[tuple[int, int]], most: int) -> Iterable[int]:
    """Return the two integers between which a rising function gets to a value, if it does between two points."""
    for (a, fa), (b, fb) in pairwise(points):
        if fa < most < fb:
            place = Fraction((most - fa) * (b - a), fb - fa) + a
            return place.numerator // place.denominator, up(place)
    return ()


def _values(points: list[tuple[int, int]], places: list[int]) -> list[int]:
    """Return the values at ascending places of a function that is level outside its points, which are exact."""
    values, k = [], 0
    for place in places:
        while k < len(points) and points[k][0] <= place:
            k += 1
        if k in (0, len(points)):
            values.append(points[k - 1][1] if k else (points[0][1] if points else 0))
        else:
            (a, fa), (b, fb) = points[k - 1], points[k]
            values.append(fa + (fb - fa) // (b - a) * (place - a))
    return values
