"""Jobs, server windows and GPUs in flat lists, as the kernel of job insertion takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel, Routes
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.engines.compiled import concatenated
from jigsaw_opt.solvers.engines.magnitude import infinity
from jigsaw_opt.solvers.kernels.insertion_state import InsertionInput, InsertionState
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import Demand, Layout, exchange_us
from jigsaw_opt.solvers.placement.levels import level_plan


class ServerWindow(NamedTuple):
    """Servers for a job.

    `fewest, most`: workers that each of them takes at least and at most. The channel is the same for all numbers
    between.
    """

    servers: tuple[int, ...]
    fewest: tuple[int, ...]
    most: tuple[int, ...]
    channel: Channel


def windows(layout: Layout, job: OperationGraph) -> tuple[list[ServerWindow], list[ServerWindow]]:
    """Return the fewest contiguous servers from each one on that have a GPU for each worker, and wider windows.

    The wider ones are a reserve. They have one or two servers more, or twice or three times as many. Contiguous means
    in the order of the cluster, among the servers that may run the job and that routes join.
    """
    usable: dict[int, list[int]] = {}
    routes = layout.routes.under(job.route_policy)
    for s, server in enumerate(layout.servers):
        if server.gpu_type in job.gpu_types:
            usable.setdefault(routes.component[s], []).append(s)
    narrow: list[ServerWindow] = []
    wide: list[ServerWindow] = []
    for servers in usable.values():
        for at in checking_deadline(range(len(servers))):
            room = fewest = 0
            joined = list(islice(routes.mutual(islice(servers, at, None)), job.slots))
            for count, last in enumerate(joined, 1):
                room += layout.servers[last].gpus
                if room >= job.slots and (not fewest or count in (fewest + 1, fewest + 2, 2 * fewest, 3 * fewest)):
                    found = _with_workers(layout, routes, joined[:count], job.slots)
                    (wide if fewest else narrow).extend(found)
                    fewest = fewest or count
                if fewest and count >= 3 * fewest:
                    break
    return narrow, wide


def _with_workers(layout: Layout, routes: Routes, servers: Sequence[int], slots: int) -> Iterator[ServerWindow]:
    """Yield ways to share out the workers: any, if all give one channel; else all but the rest on full servers."""
    gpus = [min(slots, layout.servers[s].gpus) for s in servers]
    if len(servers) == 1:
        channel = routes.channel({servers[0]: slots})
        if channel is not None:
            yield ServerWindow((servers[0],), (slots,), (slots,), channel)
        return
    ones, twos = (routes.channel(dict.fromkeys(servers, count)) for count in (1, 2))
    if ones is not None and ones == twos:
        yield ServerWindow(tuple(servers), (1,) * len(servers), tuple(gpus), ones)
        return
    for counts in dict.fromkeys((_filled(gpus, slots), _filled(gpus[::-1], slots)[::-1])):
        channel = routes.channel(dict(zip(servers, counts, strict=True)))
        if channel is not None:
            yield ServerWindow(tuple(servers), counts, counts, channel)


def _filled(gpus: Sequence[int], slots: int) -> tuple[int, ...]:
    """Return workers by server: one each, and of the others as many as have room from the first server on."""
    counts, left = [1] * len(gpus), slots - len(gpus)
    for n, room in enumerate(gpus):
        more = min(left, room - 1)
        counts[n] += more
        left -= more
    return tuple(counts)


class InsertionLists:
    """An instance as the kernel takes it, in lists.

    `choices`: by job, what it may ask for; the first holds at the start. `class_of`: number of the class of every
    choice, by its identity. `given, state`: what the kernel takes; nothing is inserted.
    """

    def __init__(self, table: ProblemData, choices: Sequence[Sequence[Demand]]) -> None:
        self.table, layout = table, table.layout
        self.kinds = {kind: n for n, kind in enumerate(dict.fromkeys(layout.type_of))}
        self.most_memory = max(layout.memory)
        asked = {id(demand): demand for own in choices for demand in own}
        self.class_of = {key: n for n, key in enumerate(asked)}
        self.demands = list(asked.values())
        self.rows = list(map(self._levels, self.demands))
        self.windows: list[ServerWindow] = []
        self.offered: list[tuple[range, range]] = []
        self._offer_windows()
        self.channel_of = self._number_channels()
        self.given = self._input(table.operations, [self.class_of[id(own[0])] for own in choices])
        self.state = self._state(table.operations)

    def _offer_windows(self) -> None:
        """Add the windows of every class; those of one width on the same GPU types and routes share theirs."""
        known: dict[tuple[int, tuple[str, ...], str | None], tuple[range, range]] = {}
        for demand in checking_deadline(self.demands):
            key = demand.job.slots, tuple(sorted(demand.job.gpu_types)), demand.job.route_policy
            if key not in known:
                first = len(self.windows)
                narrow, wide = windows(self.table.layout, demand.job)
                self.windows += (*narrow, *wide)
                reserve, end = first + len(narrow), len(self.windows)
                known[key] = range(first, reserve), range(reserve, end)
            self.offered.append(known[key])

    def _input(self, operations: Operations, job_class: list[int]) -> InsertionInput:
        jobs, layout = operations.jobs, self.table.layout
        graphs = [demand.job for demand in self.demands]
        windows_of = self.windows
        channels = len({0, *self.channel_of})
        exchange_at, exchange, least_us = self._exchange(channels)
        offered = [(*narrow, *wide) for narrow, wide in self.offered]
        window_at = [0, *accumulate(map(len, offered))]
        level_at, asked = concatenated([list(chain.from_iterable(own)) for own, _ in self.rows])
        need_at, need = concatenated([_need(own, fixed) for own, fixed in self.rows])
        activation_at, activation = concatenated([self._clipped(job.activation_bytes) for job in graphs])
        time_at, time = concatenated([self._times(job) for job in graphs])
        link_at, link = concatenated([[len(layout.gpus) + link for link in each.channel.links] for each in windows_of])
        member_at, server = concatenated([each.servers for each in windows_of])
        return InsertionInput(
            job_class=job_class,
            release=[job.release_us for job in jobs],
            weight=[job.weight for job in jobs] if operations.objective == "weighted_completion" else [],
            operation_at=[0, *accumulate(job.iterations * operations_of_iteration(job) for job in jobs)],
            slot_at=[0, *accumulate(job.slots for job in jobs)],
            slots=[job.slots for job in graphs],
            buckets=[len(job.transfers) for job in graphs],
            iterations=[job.iterations for job in graphs],
            depth=[job.levels for job in graphs],
            state_bytes=self._clipped([job.state_bytes for job in graphs]),
            fixed=[int(fixed) for _, fixed in self.rows],
            level_at=level_at,
            asked=asked,
            need_at=need_at,
            need=need,
            activation_at=activation_at,
            activation=activation,
            time_at=time_at,
            time=time,
            least_us=least_us,
            window_at=window_at,
            window=list(chain.from_iterable(offered)) or [0],
            reserve_at=[at + len(narrow) for at, (narrow, _) in zip(window_at, self.offered, strict=False)],
            exchange_at=exchange_at,
            exchange=exchange,
            channels=[channels],
            channel=self.channel_of,
            link_at=link_at,
            link=link,
            member_at=member_at,
            server=server,
            fewest=list(chain.from_iterable(each.fewest for each in windows_of)),
            most=list(chain.from_iterable(each.most for each in windows_of)),
            gpu_at=[0, *accumulate(map(len, layout.on_server))],
            gpu_type=[self.kinds[kind] for kind in layout.type_of],
            memory=list(layout.memory),
        )

    def _state(self, operations: Operations) -> InsertionState:
        given, jobs, layout = self.given, operations.jobs, self.table.layout
        resources, gpus = len(layout.gpus) + layout.links, len(layout.gpus)
        most_links = max((len(window.channel.links) for window in self.windows), default=0)
        busy = resources + sum(job.iterations * (job.slots + len(job.transfers) * most_links) for job in jobs)
        widest, largest = (
            max(job.slots for job in jobs),
            max(job.iterations * operations_of_iteration(job) for job in jobs),
        )
        sizes = dict.fromkeys(InsertionState._fields, len(jobs))
        sizes |= dict.fromkeys(("begin", "end", "after", "before"), busy)
        sizes |= dict.fromkeys(("busy", "inserted", "beyond", "visits", "halt", "choice"), 1)
        sizes |= dict.fromkeys(("resident", "peak", "free", "cap", "taken"), gpus)
        sizes |= dict.fromkeys(("gpu", "peak_before"), given.slot_at[-1])
        sizes |= dict.fromkeys(("level", "start"), given.operation_at[-1])
        sizes |= dict.fromkeys(("chosen", "cursor", "finish", "rank", "best_gpu"), widest)
        sizes |= dict.fromkeys(("trial_level", "trial_start", "best_level", "best_start"), largest)
        sizes |= {"link_cursor": most_links, "open": len(layout.servers)}
        state = InsertionState(**{name: [0] * size for name, size in checking_deadline(sizes.items())})
        state.beyond[0], state.busy[0] = infinity(operations), resources
        for r in range(resources):
            state.begin[r], state.after[r], state.before[r] = state.beyond[0], r, r
        return state

    def _levels(self, demand: Demand) -> tuple[Sequence[Sequence[int]], bool]:
        """Return the levels of a class by iteration, and whether each slot has its own."""
        job = demand.job
        plan = level_plan(job, demand.rows, [job.levels] * job.slots)
        return (plan.rows, plan.fixed) if plan is not None else ([(job.levels,) * job.slots] * job.iterations, True)

    def _times(self, job: OperationGraph) -> list[int]:
        tables = job.blocks[0].duration_us
        return list(chain.from_iterable(tables.get(kind, (-1,) * job.levels) for kind in self.kinds))

    def _clipped(self, sizes: Sequence[int]) -> list[int]:
        """Return bytes, none more than just too much for every GPU, so that sums of them stay small."""
        return [min(size, self.most_memory + 1) for size in sizes]

    def _number_channels(self) -> list[int]:
        """Return the number of the channel of every window, the same for all of one rate and latency."""
        number: dict[tuple[int, int], int] = {}
        channels = [(window.channel.rate, window.channel.latency_us) for window in self.windows]
        return [number.setdefault(channel, len(number)) for channel in channels]

    def _exchange(self, channels: int) -> tuple[list[int], list[int], list[int]]:
        """Return by class and channel where the durations of transfers are, these, and `least_us`."""
        places: dict[tuple[int, int], int] = {}
        exchange_at: list[int] = []
        exchange: list[int] = []
        least_us: list[int] = []
        for n, (demand, (narrow, wide)) in checking_deadline(enumerate(zip(self.demands, self.offered, strict=True))):
            job, own = demand.job, {self.channel_of[w]: self.windows[w].channel for w in (*narrow, *wide)}
            for h in range(channels):
                key = id(job.blocks), h
                if h in own and key not in places:
                    places[key] = len(exchange)
                    for transfer in job.transfers:
                        counts = range(1, job.slots + 1)
                        exchange += [job.transfer_us(transfer.bucket, count, own[h]) for count in counts]
                exchange_at.append(places.get(key, 0))
                least_us.append(_least_us(job, self.rows[n][0], own[h]) if h in own else 0)
        return exchange_at, exchange, least_us


def operations_of_iteration(job: OperationGraph) -> int:
    """Return the number of blocks, transfers and the barrier of an iteration."""
    return job.slots + len(job.transfers) + 1


def _least_us(job: OperationGraph, rows: Sequence[Sequence[int]], channel: Channel) -> int:
    """Return the least time from the start of the deepest block to the end of its iteration.

    The deepest block contributes to all buckets.
    """
    fastest: list[int] = [min(times) for times in zip(*job.blocks[0].duration_us.values(), strict=True)]
    least: list[int] = []
    for row in set(map(tuple, rows)):
        moment = 0
        for ready, duration in zip(fastest, exchange_us(job, row, channel), strict=False):
            moment = max(moment, ready) + duration
        least.append(max(moment, fastest[-1]))
    return min(least)


def _need(rows: Sequence[Sequence[int]], fixed: bool) -> list[int]:
    """Return the deepest level of each slot, descending; where each slot has its own levels, the deepest of all."""
    if fixed:
        return [max(map(max, rows))] * len(rows[0])
    return [max(levels) for levels in zip(*rows, strict=True)]
