"""What a job of either kind asks of GPUs of its own, and why a cluster has no place for it even alone."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, product
from math import inf
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.critical import candidate_levels, fewest_contributors
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import deepest_level, needed_bytes
from jigsaw_opt.problem.power import PowerCap, most_watts
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import agreeing, counted

_MOST_CAPS = 16
"""Caps of which each is tried alone with more watts."""


class AskedPlace(NamedTuple):
    """What some workers that are alike, or a slot, ask of a GPU each.

    `told`: who that is. `bytes`: memory at some moment in every plan. `state`: the part of it that stays all the time.
    `least`: what there is beside the state of any worker. `watts`: what a block alone draws at most, by type.
    """

    told: str
    number: int
    gpu_types: frozenset[str]
    bytes: int
    state: int
    least: int
    watts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """All places of a job, which are GPUs of their own that links join.

    `blocks`: watts, by type, on each place of a block that runs on several, with the numbers of these places. `graph`:
    the data-parallel job; None for one with a task graph.
    """

    name: str
    who: str
    route_policy: str | None
    places: tuple[AskedPlace, ...]
    blocks: tuple[tuple[Mapping[str, int], tuple[int, ...]], ...] = ()
    graph: OperationGraph | None = None

    @property
    def number(self) -> int:
        """Return the number of GPUs that it asks for."""
        return sum(place.number for place in self.places)


def places_of(job: OperationGraph | CompiledTaskGraph) -> JobPlaces:
    """Return the places of a job."""
    if isinstance(job, CompiledTaskGraph):
        return _of_slots(job)
    levels = candidate_levels(job)
    places, deeper = list[AskedPlace](), 0
    for level in reversed(levels):
        size = needed_bytes([(job.state_bytes, job.activation_bytes[level - 1])])
        number, least = fewest_contributors(job, level), job.activation_bytes[levels[0] - 1]
        told = f"job {job.name}", number - deeper, frozenset(job.gpu_types)
        places.append(AskedPlace(*told, size, job.state_bytes, least, job.power_w))
        deeper = number
    return JobPlaces(job.name, "worker", job.route_policy, tuple(places), graph=job)


def _of_slots(graph: CompiledTaskGraph) -> JobPlaces:
    name, blocks = graph.job.name, graph.shape.blocks
    places = []
    for slot, types, own, size in zip(
        graph.shape.slots, graph.gpu_types, graph.blocks_of, _least_bytes(graph), strict=True
    ):
        watts = {kind: max((blocks[block].power_w or {}).get(kind, 0) for block in own) for kind in types}
        places.append(AskedPlace(f"slot {slot.name} of job {name}", 1, frozenset(types), size, slot.memory, 0, watts))
    wide = ((block.power_w or {}, slots) for block, slots in zip(blocks, graph.takes_part, strict=False))
    joint = tuple((watts, slots) for watts, slots in wide if len(slots) > 1)
    return JobPlaces(name, "slot", graph.job.route_policy, tuple(places), joint)


def _least_bytes(graph: CompiledTaskGraph) -> list[int]:
    """Return, by slot, what it takes at some moment in every plan: its memory, and what is surely held during a block.

    A hold from a block to the same is sure; one to another block holds nothing where that one ends first.
    """
    after = {(before, later) for before, later, lag in graph.edges if lag == 0}
    held = Counter[tuple[int, int]]()
    for hold in graph.holds:
        if hold.start == hold.end or (hold.start, hold.end) in after:
            for block in {hold.start, hold.end}:
                held[hold.slot, block] += hold.bytes
    most = Counter[int]()
    for (slot, _), size in held.items():
        most[slot] = max(most[slot], size)
    return [slot.memory + most[number] for number, slot in enumerate(graph.shape.slots)]


def causes_of_places(operations: Operations, job: JobPlaces) -> Iterator[Conflict]:
    """Yield why a job has no place even on an empty cluster, those that explain the others first.

    The places that depend on some types, and take at least so much memory, are no more than the GPUs of these types
    with that memory.
    """
    servers, whole = operations.cluster.servers, operations.cluster.gpu_count
    existing = frozenset(server.gpu_type for server in servers)
    for types in sorted(dict.fromkeys([*(place.gpu_types & existing for place in job.places), existing]), key=len):
        inside = [place for place in job.places if place.gpu_types & existing <= types]
        usable = [server for server in servers if server.gpu_type in types]
        if inside and not types:
            yield Conflict("gpu_type", (job.name,), _no_type(inside[0], existing))
        yield from _too_few(job, inside, usable, whole)
        yield from _too_small(job, inside, usable)
    usable = [server for server in servers if any(server.gpu_type in place.gpu_types for place in job.places)]
    parts = _joined_parts(operations, usable, job.route_policy)
    yield from _unjoined(job, max(sum(server.gpus for server in part) for part in parts))

    def has_place(caps: Sequence[PowerCap]) -> bool:
        return any(_fit(job, part, caps) for part in parts)

    if not has_place(()):
        message = f"no part of the cluster that links join has both the GPUs and the memory for job {job.name}"
        fewer = f"fewer than {job.number:,} {job.who}s or a shallower depth rule"
        wanted = f"links between more of its GPUs, {fewer} may help"
        yield Conflict("memory", (job.name,), f"{message} at the depth that its rule asks for; {wanted}")
    elif (caps := operations.cluster.capacities) and not has_place(caps):
        most = sum(place.number * max(place.watts.values(), default=0) for place in job.places)
        yield Conflict("power", (job.name,), _too_many_watts(job.name, caps, has_place, most))


def _fit(job: JobPlaces, servers: Sequence[Server], caps: Sequence[PowerCap]) -> bool:
    """Return whether servers may have all places, and no block, running alone, draws more there than a cap allows.

    A block on several places draws at least the sum of what is least for each of them.
    """
    most = most_watts(caps)

    def holds(server: Server, place: AskedPlace) -> bool:
        drawn = place.watts.get(server.gpu_type, 0)
        fits = server.gpu_type in place.gpu_types and server.gpu_memory >= place.bytes
        return fits and drawn <= most.get(server.name, inf)

    known: dict[object, frozenset[int]] = {}
    room, asked = list[frozenset[int]](), Counter[frozenset[int]]()
    for place in job.places:
        key = place.gpu_types, place.bytes, *place.watts.items()
        if key not in known:
            known[key] = frozenset(s for s, server in enumerate(servers) if holds(server, place))
        room.append(known[key])
        asked[known[key]] += place.number
    if any(
        sum(number for own, number in asked.items() if own <= some) > sum(servers[s].gpus for s in some)
        for some in asked
    ):
        return False
    for cap, (watts, places) in product(caps, job.blocks):
        drawn = {s: watts.get(server.gpu_type, 0) for s, server in enumerate(servers) if server.name in cap.servers}
        if sum(min(drawn.get(s, 0) for s in room[place]) for place in places) > cap.watts:
            return False
    return job.graph is None or _is_deep_enough(job.graph, [servers[s] for s in frozenset[int]().union(*room)])


def _is_deep_enough(job: OperationGraph, servers: Iterable[Server]) -> bool:
    """Return whether servers have the memory for the least total of levels."""
    if job.rule.multiset is not None:
        return True
    on_server = ([deepest_level(job, server.gpu_memory)] * server.gpus for server in servers)
    depths = sorted(chain.from_iterable(on_server), reverse=True)
    most = job.iterations * sum(depths[: job.slots])
    return most >= min(job.rule.min_total, job.iterations * job.slots * job.levels)


def _joined_parts(operations: Operations, servers: Iterable[Server], policy: str | None) -> list[list[Server]]:
    """Return servers by the part of the cluster that the routes of a policy join; None for any route."""
    component, wanted = operations.routes.under(policy).component, {server.name for server in servers}
    parts: dict[int, list[Server]] = {}
    for server, part in zip(operations.cluster.servers, component, strict=True):
        if server.name in wanted:
            parts.setdefault(part, []).append(server)
    return list(parts.values())


def _no_type(place: AskedPlace, existing: frozenset[str]) -> str:
    have, can = ", ".join(sorted(existing)), ", ".join(sorted(place.gpu_types)) or "none"
    why = f"it has times for {can}, the cluster has {have}"
    wanted = f"times for {have}, or a server with GPUs of type {can}, are wanted"
    return f"{place.told} runs on none of the cluster's GPU types: {why}; {wanted}"


def _too_few(job: JobPlaces, places: Sequence[AskedPlace], servers: Sequence[Server], whole: int) -> Iterator[Conflict]:
    number, gpus = sum(place.number for place in places), sum(server.gpus for server in servers)
    if number > gpus:
        types = {server.gpu_type for server in servers}
        yield Conflict("reach", (job.name,), too_few(job.name, job.who, number, gpus, types, whole))


def too_few(job: str, who: str, number: int, gpus: int, types: Iterable[str], whole: int) -> str:
    """Return the message that a job asks for more GPUs of some types than there are, of so many in all."""
    kinds = f" of type {', '.join(sorted(types))}"
    told = (
        f"job {job} has {counted(number, who)} on GPUs of their own{kinds}, and the cluster has {counted(gpus, 'GPU')}"
    )
    more, others = number - gpus, f" of it (of {whole:,} in all)" if gpus < whole else ""
    wanted = f"{counted(more, 'more GPU')} {agreeing(more)} wanted, or at most {counted(gpus, who)}"
    return f"{told}{others}; {wanted}"


def _too_small(job: JobPlaces, places: Sequence[AskedPlace], servers: Sequence[Server]) -> Iterator[Conflict]:
    asked, state = Counter[int](), dict[int, int]()
    for place in places:
        asked[place.bytes] += place.number
        state[place.bytes] = place.state
    sizes = sorted(asked, reverse=True)
    for size, count in zip(sizes, accumulate(asked[size] for size in sizes), strict=True):
        gpus = sum(server.gpus for server in servers if server.gpu_memory >= size)
        if gpus < count:
            kinds = ", ".join(sorted({server.gpu_type for server in servers}))
            who = f"{counted(count, job.who)} that {agreeing(count, 'takes', 'take')}"
            bytes_each = (
                f"at least {size:,} bytes ({state[size]:,} of state, the rest at times) of a GPU of type {kinds}"
            )
            largest = max((server.gpu_memory for server in servers), default=0)
            has = f"only {counted(gpus, 'GPU')} {agreeing(gpus, 'has', 'have')} so much"
            found = has if gpus else f"the largest has {largest:,}"
            message = f"job {job.name} has {who} {bytes_each}, and {found}{_more_memory(count, size, servers)}"
            yield Conflict("memory", (job.name,), message)


def _more_memory(count: int, memory: int, servers: Sequence[Server]) -> str:
    """Return a clause on how much more memory is needed at least, and where; empty where there are too few GPUs.

    `memory`: bytes that each of them must have.
    """
    ranked = sorted(servers, key=lambda server: -server.gpu_memory)
    last = next(islice(chain.from_iterable([server] * server.gpus for server in ranked), count - 1, None), None)
    if last is None:
        return ""
    return f"; at least {amount(memory - last.gpu_memory)} more are wanted, as on each GPU of server {last.name}"


def amount(size: int) -> str:
    """Return bytes in a unit that is read at once, rounded up."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{-(-size * 10 // unit) / 10:g} {name}"
    return counted(size, "byte")


def _unjoined(job: JobPlaces, gpus: int) -> Iterator[Conflict]:
    if gpus < job.number:
        allowed = "" if job.route_policy is None else f" that its route policy {job.route_policy!r} allows"
        joined = f"no more than {gpus:,} of its GPUs {agreeing(gpus)} joined by links{allowed}"
        wanted = f"links that join {job.number - gpus:,} more of them are wanted, or at most {counted(gpus, job.who)}"
        message = f"job {job.name} has {counted(job.number, job.who)}, and {joined}; {wanted}"
        yield Conflict("reach", (job.name,), message)


def _too_many_watts(
    job: str, caps: Sequence[PowerCap], has_place: Callable[[Sequence[PowerCap]], bool], most: int
) -> str:
    """Return the message that caps leave a job no place, with the least watts that help.

    `has_place`: tells whether the job may have one under some caps. `most`: watts that it never draws more than.
    """

    def least(number: int | None) -> int:
        return bisect_left(range(most + 1), True, key=lambda watts: has_place(_raised(caps, number, watts)))

    told = f"some block of job {job} alone draws"
    tried = (k for k in range(len(caps[:_MOST_CAPS])) if has_place(_raised(caps, k, most)))
    found = min(((least(k), caps[k]) for k in tried), key=lambda each: each[0] - each[1].watts, default=None)
    if found is not None:
        (watts, cap), others = found, " that other power caps leave" if len(caps) > 1 else ""
        where = f"under power cap {cap.name!r}, which allows {cap.watts:,} W, wherever the job has room{others}"
        wanted = f"a cap of at least {watts:,} W, or a place for it outside the cap, is wanted"
        return f"{told} at least {watts:,} W {where}; {wanted}"
    where = f"such as {caps[0].name!r} of {caps[0].watts:,} W, wherever the job has room"
    wanted = f"caps of at least {least(None):,} W each, or a place for it outside of them, are wanted"
    return f"{told} more than a power cap allows, {where}; {wanted}"


def _raised(caps: Sequence[PowerCap], number: int | None, watts: int) -> list[PowerCap]:
    """Return the caps where one of them, or each for None, allows at least so many watts."""
    return [altered(cap, watts=max(cap.watts, watts)) if number in (None, k) else cap for k, cap in enumerate(caps)]
