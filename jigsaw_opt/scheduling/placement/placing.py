"""Finding GPUs for jobs: what is free, and which of it to take."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.gpu_pools import GpuPool
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState

PLACEMENTS = ("packed", "emptiest", "consolidated")
"""How jobs are placed: on few servers where that can be, on the emptiest servers, or only on as few as they can be."""


def too_wide(setting: ClusterSetting, policy: str, job: TraceJob) -> str | None:
    """Return why a policy that gives each job as many GPUs as it asks for cannot run a job; None where it can."""
    choice = setting.pool_choice
    most = choice.most_gpus(job)
    if job.gpus > most:
        of_one_type, has = (", all of one type", f"of a type that it may have {most}") if choice.mixed else ("", most)
        return (
            f"policy {policy!r} gives jobs as many GPUs as they ask for{of_one_type}:"
            f" job {job.name!r} asks for {job.gpus} and the cluster has {has}"
        )
    if choice.mixed and not choice.of(job):
        return f"policy {policy!r} finds no type of GPU on which job {job.name!r} can run and that has {job.gpus} GPUs"
    return None


def by_priority(
    setting: ClusterSetting,
    jobs: Iterable[JobState],
    in_order: Callable[[Iterable[JobState]], Sequence[JobState]],
    placement: str = "packed",
    down: Collection[int] = (),
    dead: frozenset[int] = frozenset(),
) -> tuple[Share, ...]:
    """Return the shares of the jobs that run, with preemption, where those first in order come first.

    A job for which too few GPUs are left is passed over, and one that goes on keeps its GPUs. One that loses them to
    others counts as one that waits: it may have what is left elsewhere. ``consolidated`` also passes over a job that
    no few servers have room for, and moves jobs that come later out of the way of earlier ones.

    `in_order`: puts jobs in order. The place of a job may depend on whether it runs.
    """
    jobs = list(jobs)
    if placement == "consolidated":
        return _consolidated(setting, in_order(jobs), down, dead)
    while True:
        shares = _fitting(setting, in_order(jobs), placement, down, dead)
        running = {index for share in shares for index in share.jobs}
        losing = {one.index for one in jobs if one.share is not None and one.index not in running}
        if not losing or sum(map(len, setting.pools_up(dead))) == 1:
            return shares
        jobs = [replace(one, share=None) if one.index in losing else one for one in jobs]


def _fitting(
    setting: ClusterSetting, order: Iterable[JobState], placement: str, down: Collection[int], dead: frozenset[int]
) -> tuple[Share, ...]:
    """Return shares: each job in turn, if its part of the cluster has enough GPUs left, or a part that it may have."""
    joined, numbers, left, part_of = setting.pools_up(dead), list[range](), list[int](), dict[int, int]()
    for parts in joined:
        numbers.append(range(len(left), len(left) + len(parts)))
        part_of.update((k, number) for number, part in zip(numbers[-1], parts, strict=True) for k in part.servers)
        left += [sum(gpu not in down for k in part.servers for gpu in setting.gpus_of[k]) for part in parts]
    chosen: list[JobState] = []
    for active in order:
        share, count = active.share, active.job.gpus
        if share is None:
            groups = setting.pool_choice.of(active.job)
            parts_for = [number for group in groups for pool in group for number in numbers[pool.number]]
        else:
            parts_for = [part_of[setting.server_of[share.gpus[0]]]]
        number = next((number for number in parts_for if left[number] >= count), None)
        if number is not None:
            chosen.append(active)
            left[number] -= count
            if not any(left):
                break
    kept = [active.share for active in chosen if active.share is not None]
    free = FreeGpus(setting, kept, down, dead)
    started = []
    for active in chosen:
        if active.share is None:
            gpus = free.place(active.job, placement)
            if gpus is not None:  # there are enough, but jobs before may be in another part than counted
                started.append(Share((active.index,), gpus))
    return (*kept, *started)


def _consolidated(
    setting: ClusterSetting, order: Sequence[JobState], down: Collection[int], dead: frozenset[int]
) -> tuple[Share, ...]:
    """Return shares: each job in turn keeps its GPUs, or gets unheld ones, or ones of jobs that come later."""
    open_to = FreeGpus(setting, (), down, dead)
    unheld = FreeGpus(setting, [active.share for active in order if active.share is not None], down, dead)
    shares: list[Share] = []
    hopeless: set[object] = set()  # numbers of GPUs, and pools, that no few servers have, now or later in the order
    for active in order:
        if open_to.count == 0:
            break
        own = active.share
        if own is not None and open_to.has(own.gpus):
            open_to.remove(own.gpus)
            shares.append(own)
            continue
        wanted = active.job.gpus, setting.pool_choice.of(active.job)
        if wanted in hopeless:
            continue
        gpus = place_unheld_first(unheld, open_to, active.job, "consolidated")
        if gpus is None:
            hopeless.add(wanted)
        else:
            shares.append(Share((active.index,), gpus))
    return tuple(shares)


def place_unheld_first(
    unheld: FreeGpus, open_to: FreeGpus, job: TraceJob, placement: str, without: Container[int] = ()
) -> tuple[int, ...] | None:
    """Take GPUs for a job of those that nobody holds, or else of all that are open to it; None where there are none."""
    for own, other in ((unheld, open_to), (open_to, unheld)):
        if (gpus := own.place(job, placement, without)) is not None:
            other.remove(gpus)
            return gpus
    return None


def started_in_turn(
    setting: ClusterSetting,
    waiting: Iterable[JobState],
    place: Callable[[TraceJob, Container[int]], tuple[int, ...] | None],
) -> Iterator[Share]:
    """Yield the shares of the jobs that start, each in its turn; one that finds no GPUs holds pools for itself.

    `place`: takes GPUs for a job outside of the pools that are held.
    """
    held = HeldPools(setting)
    for active in waiting:
        gpus = place(active.job, held.numbers)
        if gpus is not None:
            yield Share((active.index,), gpus)
        elif held.hold(active.job):
            return


Victim = TypeVar("Victim")


def fewest_victims(
    candidates: Iterable[Victim],
    free: Callable[[Victim], None],
    use: Callable[[Victim], None],
    fits: Callable[[list[Victim]], bool],
) -> list[Victim]:
    """Return candidates that make room, freed, and the others as before; none where all together do not.

    Candidates are freed in their order until there is room. Then they are put back in reverse order as long as there
    is still room, so that none is stopped for nothing.
    """
    gone = list[Victim]()
    for one in candidates:
        free(one)
        gone.append(one)
        if fits(gone):
            break
    else:
        for one in gone:
            use(one)
        return []
    for one in gone[-2::-1]:
        use(one)
        rest = [other for other in gone if other is not one]
        if fits(rest):
            gone = rest
        else:
            free(one)
    return gone


class HeldPools:
    """Pools that waiting jobs hold for themselves, so that no job behind them may have their GPUs.

    `numbers`: numbers of the pools that are held.
    """

    def __init__(self, setting: ClusterSetting) -> None:
        self._choice, self._pools = setting.pool_choice, setting.pools
        self.numbers: set[int] = set()

    def hold(self, job: TraceJob) -> bool:
        """Hold all pools of the types that a job could run on, if any, and return whether there are no others."""
        kinds = self._choice.kinds_of(job)
        self.numbers.update(pool.number for pool in self._pools if pool.kind in kinds)
        return len(self.numbers) == len(self._pools)


class FreeGpus:
    """The GPUs that no share holds, by server.

    `down, dead`: GPUs and links that are down.
    """

    def __init__(
        self,
        setting: ClusterSetting,
        shares: Iterable[Share] = (),
        down: Collection[int] = (),
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self._server_of = setting.server_of
        held = {gpu for share in shares for gpu in share.gpus}.union(down)
        self._free = [[gpu for gpu in gpus if gpu not in held] for gpus in setting.gpus_of]
        self._choice, self._joined = setting.pool_choice, setting.pools_up(dead)
        self.count = sum(map(len, self._free))

    def place(
        self, job: TraceJob, placement: str, without: Container[int] = (), beside: Iterable[TraceJob] = ()
    ) -> tuple[int, ...] | None:
        """Take as many GPUs as a job asks for, of one type and joined by links; None where there are too few.

        The type on which it runs fastest comes first.

        `placement`: A name in `PLACEMENTS`. ``packed`` is on one server if that is possible, the one that it fills
        best; else on the servers with the most free GPUs, which is the fewest servers. ``emptiest`` takes always from
        the server with the most free GPUs. ``consolidated`` is on as few servers as in an empty cluster of the type. Of
        equal servers the first. `beside`: jobs that share the GPUs, which must be able to have them too.
        """
        if job.gpus > self.count:
            return None
        others = [{pool for group in self._choice.of(other) for pool in group} for other in beside]
        for group in self._choice.of(job):
            pools = [pool for pool in group if pool.number not in without and all(pool in own for own in others)]
            gpus = self._of_one_type(job.gpus, placement, pools) if pools else None
            if gpus is not None:
                return gpus
        return None

    def _of_one_type(self, count: int, placement: str, pools: Sequence[GpuPool]) -> tuple[int, ...] | None:
        """Take GPUs of pools of one type, all in one part of one of them."""
        parts = [part for pool in pools for part in self._joined[pool.number]]
        if placement == "consolidated":
            fewest = min(_fewest(pool.widths, count) for pool in pools)
            for part in parts:
                if sum(sorted((len(self._free[k]) for k in part.servers), reverse=True)[:fewest]) >= count:
                    return self._take(count, part.servers, True)
            return None
        servers = self._room(count, parts)
        if not servers:
            return None
        return self._take(count, servers, placement != "emptiest")

    def _room(self, count: int, pools: Sequence[GpuPool]) -> Sequence[int]:
        """Return the servers to take `count` GPUs of: of one pool, if no server has so many."""
        servers = [k for pool in pools for k in pool.servers]
        if len(pools) > 1 and max(len(self._free[k]) for k in servers) >= count:
            return sorted(servers)
        return next((pool.servers for pool in pools if sum(len(self._free[k]) for k in pool.servers) >= count), ())

    def _take(self, count: int, servers: Sequence[int], packed: bool) -> tuple[int, ...]:
        """Take GPUs of servers that have so many, always of the one with the most.

        `packed`: what is left is taken of the fullest server that has so many, if there is one.
        """
        taken: list[int] = []
        while (want := count - len(taken)) > 0:
            fitting = [k for k in servers if packed and len(self._free[k]) >= want]
            best = (min if fitting else max)(fitting or servers, key=lambda k: len(self._free[k]))
            taken += self._free[best][:want]
            self._free[best] = self._free[best][want:]
        self.count -= count
        return tuple(sorted(taken))

    def place_on(self, job: TraceJob, servers: Collection[int]) -> tuple[int, ...] | None:
        """Take GPUs of some servers for a job, of each at least one where it asks for so many; None if it cannot be."""
        spread = [k for k in servers if self._free[k]]
        if len(spread) < len(servers) or not len(servers) <= job.gpus <= sum(len(self._free[k]) for k in servers):
            return None
        taken = [self._free[k][0] for k in servers]
        others = [gpu for k in servers for gpu in self._free[k][1:]]
        gpus = tuple(sorted((*taken, *others[: job.gpus - len(taken)])))
        self.remove(gpus)
        return gpus

    def on(self, server: int) -> Sequence[int]:
        """Return the free GPUs of a server."""
        return self._free[server]

    def count_on(self, server: int) -> int:
        """Return how many GPUs of a server are free."""
        return len(self._free[server])

    def copy(self) -> FreeGpus:
        """Return the same GPUs, to take from apart."""
        return self.without_servers(())

    def without_servers(self, servers: Collection[int]) -> FreeGpus:
        """Return the same GPUs but for those of some servers, to take from apart."""
        other = copy(self)
        other._free = [[] if k in servers else list(free) for k, free in enumerate(self._free)]
        other.count = sum(map(len, other._free))
        return other

    def add(self, gpus: Iterable[int]) -> None:
        """Free GPUs that are not free."""
        for gpu in gpus:
            insort(self._free[self._server_of[gpu]], gpu)
            self.count += 1

    def has(self, gpus: Iterable[int]) -> bool:
        """Return whether all of `gpus` are free."""
        return all(gpu in self._free[self._server_of[gpu]] for gpu in gpus)

    def remove(self, gpus: Iterable[int]) -> None:
        """Take those of `gpus` that are free."""
        for gpu in gpus:
            free = self._free[self._server_of[gpu]]
            if gpu in free:
                free.remove(gpu)
                self.count -= 1


def _fewest(widths: Sequence[int], count: int) -> int:
    """Return how many servers have `count` GPUs, the widest first; 0 where they have too few."""
    most = list(accumulate(widths))
    return 1 + bisect_left(most, count) if most and most[-1] >= count else 0
