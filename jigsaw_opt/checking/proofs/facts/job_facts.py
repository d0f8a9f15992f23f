"""Facts of data-parallel jobs that proofs use (docs/proofs.md): least times, work and transfers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import ClusterFacts, GpuKind, RateAndLatency, added_up
from jigsaw_opt.checking.proofs.facts.level_limits import LevelLimits, lower_envelope
from jigsaw_opt.checking.terms import ModelTerms, transfer_duration
from jigsaw_opt.problem.job import Job

SLOPE_UNIT = 2**16
"""Slopes are in microseconds times this, rounded down, so that they are integers."""


class TransferFacts(NamedTuple):
    """The transfers of an iteration over a channel.

    `shortest`: least duration of each, in microseconds. `slopes`: what one more contributor adds to each at least on
    average, in microseconds times `SLOPE_UNIT`; none where the levels are fixed.
    """

    shortest: tuple[int, ...]
    slopes: tuple[int, ...]

    @property
    def rests(self) -> list[int]:
        """Least time of each transfer and all after it."""
        return list(accumulate(reversed(self.shortest)))[::-1]


class SiteFacts(NamedTuple):
    """Where a job may be placed: least times until each bucket is ready, and the best channel."""

    ready: tuple[int, ...]
    channel: RateAndLatency
    transfers: TransferFacts

    @property
    def iteration(self) -> int:
        """Least length of an iteration."""
        ends = (ready + rest for ready, rest in zip(self.ready, self.transfers.rests, strict=False))
        return max(self.ready[-1], *ends) if self.transfers.shortest else self.ready[-1]


class IterationFacts:
    """What jobs of one model, number of workers, exchange, route policy and rule for each iteration share."""

    def __init__(
        self, cluster: ClusterFacts, workers: int, terms: ModelTerms, policy: str | None, limits: LevelLimits
    ) -> None:
        self.cluster, self.workers, self.terms, self.policy = cluster, workers, terms, policy
        self.depth, self._limits = terms.depth, limits
        self._transfers: dict[RateAndLatency, TransferFacts] = {}
        self._deepest = {
            memory: sum(size + terms.state_bytes <= memory for size in terms.activation_bytes)
            for memory in {memory for _, memory in cluster.kinds}
        }

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels that a block may have, ascending."""
        fixed = self._limits.fixed
        return tuple(range(1, self.depth + 1)) if fixed is None else tuple(sorted(set(fixed)))

    @property
    def least_levels(self) -> tuple[int, ...]:
        """Levels of the workers in an iteration that no allowed choice goes below, ascending."""
        fixed, c = self._limits.fixed, self._limits.contributors
        return fixed or (1,) * (self.workers - c) + (self.depth,) * c

    def contributors(self, bucket: int) -> int:
        """Return the least number of contributors to a bucket, counted from 1."""
        if self._limits.fixed is not None:
            return sum(level >= bucket for level in self._limits.fixed)
        return self.workers if bucket == 1 else self._limits.contributors

    def deepest(self, memory: int) -> int:
        """Return the deepest level of a worker that is alone on a GPU, 0 for none."""
        return self._deepest[memory]

    @property
    def least_bytes(self) -> tuple[int, int]:
        """Bytes of the state of a worker, and of its activations at the least level that it may have."""
        return self.terms.state_bytes, self.terms.activation_bytes[self.levels[0] - 1]

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        """Number of GPUs that may hold a worker, by server that has some."""
        shallowest, cluster = self.levels[0], self.cluster
        part, found = cluster.parts(cluster.open_links(self.policy)), dict[int, int]()
        for s, (server, (gpu_type, memory)) in enumerate(zip(cluster.cluster.servers, cluster.kinds, strict=True)):
            watts = self.terms.power_w.get(gpu_type, 0)
            if (
                gpu_type in self.terms.durations
                and self.deepest(memory) >= shallowest
                and watts <= cluster.watts.get(server.name, watts)
            ):
                found[s] = cluster.gpus[s]
        room = added_up((part[s], gpus) for s, gpus in found.items())
        return {s: gpus for s, gpus in found.items() if room[part[s]] >= self.workers}

    @cached_property
    def blocks(self) -> Mapping[GpuKind, tuple[int, ...]]:
        """Duration of a block by level, for each kind of GPU that may hold a worker, as deep as its memory allows.

        Empty where none of them may hold one at the last level.
        """
        kinds = dict.fromkeys(self.cluster.kinds[s] for s in self.gpus)
        found = {(t, memory): self.terms.durations[t][: self.deepest(memory)] for t, memory in kinds}
        return found if any(len(times) == self.depth for times in found.values()) else {}

    @cached_property
    def ring(self) -> RateAndLatency | None:
        """Best channel on two or more servers; None where the job cannot be on two."""
        return self.cluster.best_channel(self.policy, self.gpus, self.workers)

    @cached_property
    def sites(self) -> tuple[SiteFacts, ...]:
        """All sites, each once."""
        return tuple(dict.fromkeys(self._sites()))

    def _sites(self) -> Iterator[SiteFacts]:
        areas = dict[tuple[GpuKind, RateAndLatency], tuple[Mapping[GpuKind, int], RateAndLatency]]()
        for s, gpus in self.gpus.items():
            server, kind = self.cluster.cluster.servers[s], self.cluster.kinds[s]
            fabric = RateAndLatency(server.fabric_bandwidth, server.fabric_latency_us)
            if gpus >= self.workers:
                # More GPUs of one kind make nothing faster.
                areas[kind, fabric] = {kind: gpus}, fabric
        for room, channel in areas.values():
            yield from self.sites_among(room, channel)
        part = self.cluster.parts(self.cluster.open_links(self.policy))
        for number in dict.fromkeys(part[s] for s in self.gpus) if self.ring is not None else ():
            joined = {s: gpus for s, gpus in self.gpus.items() if part[s] == number}
            if len(joined) >= 2 and self.ring is not None:
                yield from self.sites_among(self.cluster.by_kind(joined), self.ring)

    def sites_among(self, gpus: Mapping[GpuKind, int], channel: RateAndLatency) -> Iterator[SiteFacts]:
        """Yield the sites on some GPUs: one for each type that may hold a worker at the last level."""
        buckets = range(1, self.depth + 1)
        others = [self._ready(gpus, bucket, self.contributors(bucket)) for bucket in buckets]
        if any(other is None for other in others):
            return
        for gpu_type in dict.fromkeys(t for t, memory in gpus if self.deepest(memory) == self.depth):
            own = self.terms.durations[gpu_type]
            ready = tuple(max(mine, other or 0) for mine, other in zip(own, others, strict=True))
            yield SiteFacts(ready, channel, self.transfers_over(channel))

    def _ready(self, gpus: Mapping[GpuKind, int], bucket: int, contributors: int) -> int | None:
        """Return when so many workers have a bucket ready on the fastest GPUs; None where there are not so many."""
        fitting = [
            (self.terms.durations[t][bucket - 1], count)
            for (t, memory), count in gpus.items()
            if self.deepest(memory) >= bucket
        ]
        for time, count in sorted(fitting):
            contributors -= count
            if contributors <= 0:
                return time
        return None

    def transfer(self, bucket: int, contributors: int, channel: RateAndLatency) -> int:
        """Return the duration of a transfer."""
        payload = self.terms.bucket_bytes[bucket - 1]
        return transfer_duration(payload, contributors, self.workers, *channel)

    def transfers_over(self, channel: RateAndLatency) -> TransferFacts:
        """Return the transfers of an iteration over a channel."""
        if channel not in self._transfers:
            buckets = range(1, self.depth + 1) if self.workers >= 2 else ()
            shortest = tuple(self.transfer(b, self.contributors(b), channel) for b in buckets)
            free = self._limits.fixed is None
            slopes = tuple(self._slope(b, least, channel) for b, least in enumerate(shortest, 1) if free)
            self._transfers[channel] = TransferFacts(shortest, slopes)
        return self._transfers[channel]

    def _slope(self, bucket: int, least: int, channel: RateAndLatency) -> int:
        fewest = self.contributors(bucket)
        more = range(fewest + 1, self.workers + 1)
        rises = ((self.transfer(bucket, c, channel) - least) * SLOPE_UNIT // (c - fewest) for c in more)
        return min(rises, default=0)

    @cached_property
    def iteration(self) -> int:
        """Least length of an iteration; 0 without a site."""
        return min((site.iteration for site in self.sites), default=0)

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """Least time from the end of a block that is not stretched to the end of its iteration, by level."""
        return self.tails_on(self.blocks)

    def tails_on(self, kinds: Collection[GpuKind]) -> tuple[int, ...]:
        """Return the same for blocks on some kinds of GPU."""
        rests, found = {tuple(site.transfers.rests) for site in self.sites}, []
        for level in range(1, self.depth + 1):
            fitting = {self.blocks[kind] for kind in kinds if len(self.blocks[kind]) >= level}
            untils = (
                max([0, *(times[b] + rest[b] - times[level - 1] for b in range(level if rest else 0))])
                for times in fitting
                for rest in rests
            )
            found.append(min(untils, default=0))
        return tuple(found)

    @property
    def tail(self) -> int:
        """Least tail of all levels that a block may have."""
        return min(self.tails[level - 1] for level in self.levels)

    def cheapest(self, prices: Mapping[GpuKind, int]) -> tuple[int, ...]:
        """Return the least price of a block by level, over the kinds of GPU that may hold it; none without blocks."""
        levels = range(1, self.depth + 1 if self.blocks else 1)
        offers = [(prices.get(kind, 0), times) for kind, times in self.blocks.items()]
        return tuple(min(price * times[d - 1] for price, times in offers if len(times) >= d) for d in levels)

    @cached_property
    def shortest_blocks(self) -> tuple[int, ...]:
        """Least duration of a block by level."""
        return self.cheapest(dict.fromkeys(self.blocks, 1))

    def overflow(self, prices: Mapping[GpuKind, int]) -> int:
        """Return what an iteration costs more because each GPU holds one of its workers, where levels are fixed."""
        regrets: dict[GpuKind, list[int]] = {}
        for d in self._limits.fixed or ():
            kinds = [(prices.get(k, 0) * times[d - 1], k) for k, times in self.blocks.items() if len(times) >= d]
            first, *others = sorted(kinds)
            regrets.setdefault(first[1], []).append(others[0][0] - first[0] if others else 0)
        gpus = self.cluster.gpus_of_kind
        return sum(sum(sorted(found)[: max(0, len(found) - gpus[kind])]) for kind, found in regrets.items())

    def channel_over(self, links: Collection[int]) -> RateAndLatency | None:
        """Return the best channel that uses one of some links; None where the job cannot be on two servers."""
        if self.ring is None:
            return None
        used = [self.cluster.cluster.links[k] for k in links]
        rate, latency_us = max(link.bandwidth for link in used), min(link.latency_us for link in used)
        return RateAndLatency(min(rate, self.ring.rate), max(latency_us, self.ring.latency_us))

    def links_needed(self, links: Collection[int], crosses: bool = False) -> int:
        """Return how many of some links every placement of the job uses at least.

        `crosses`: whether its workers are known to be on several servers.
        """
        all_links, servers = self.cluster.cluster.links, self.cluster.cluster.servers
        part = self.cluster.part_of([k for k in range(len(all_links)) if k not in links])
        room = added_up((part[servers[s].name], gpus) for s, gpus in self.gpus.items())
        missing, needed = self.workers, 0
        for gpus in sorted(room.values(), reverse=True):
            if missing > 0:
                missing, needed = missing - gpus, needed + 1
        if crosses and len(room) == len(self.gpus):
            needed = max(needed, 2)
        ends = ({part.get(end) for end in all_links[k].ends} for k in links)
        # A link that leaves two of the parts counts for both; even so, as many links as join all parts are needed.
        shared = any(len(both) == 2 and both <= room.keys() for both in ends)
        return 0 if needed < 2 else needed - shared


class JobFacts:
    """Facts of one data-parallel job."""

    def __init__(self, job: Job, shared: IterationFacts, limits: LevelLimits) -> None:
        self.job, self.shared, self.limits = job, shared, limits
        self.name, self.release = job.name, job.release_us
        self.iterations, self.weight = job.iterations, job.weight

    def least_work(self, cost: Sequence[int]) -> int:
        """Return the least sum over all blocks of a cost by level that never falls."""
        n, c, depth = self.iterations, self.limits.contributors, self.shared.depth
        if self.limits.fixed is not None:
            return n * sum(cost[level - 1] for level in self.limits.fixed)
        covering, others = n * c, n * (self.shared.workers - c)
        total = min(max(self.limits.total - covering * depth, others), others * depth)
        return covering * cost[-1] + _envelope_sum(cost, others, total)

    def least_transfers(self, transfers: TransferFacts) -> int:
        """Return the least sum of the durations of all transfers."""
        return self.iterations * sum(transfers.shortest) + self._longer(transfers, 0)

    def _longer(self, transfers: TransferFacts, first: int) -> int:
        """Return what the least total of levels adds to all transfers from index `first` on."""
        if not transfers.slopes:
            return 0
        cost = list(accumulate((0,) * first + transfers.slopes[first:]))
        fixed = self.iterations * self.limits.contributors * cost[-1]
        return -((fixed - self.least_work(cost)) // SLOPE_UNIT)

    @cached_property
    def span(self) -> int:
        """Least time from the first block's start to the job's end; 0 without a site."""
        n, sites = self.iterations, self.shared.sites
        span = n * min((site.iteration for site in sites), default=0)
        if not all(site.transfers.slopes for site in sites):
            return span
        later = [[r + rest for r, rest in zip(site.ready, site.transfers.rests, strict=True)] for site in sites]
        flattest = TransferFacts((), tuple(map(min, zip(*(site.transfers.slopes for site in sites), strict=True))))
        most = self._longer(flattest, 0)
        for b, least in enumerate(map(min, zip(*later, strict=True))):
            # What later transfers gain is no more than what all of them do.
            if n * least + most > span:
                span = max(span, n * least + self._longer(flattest, b))
        return span

    @property
    def work(self) -> int:
        """Least time of all its blocks on all GPUs; 0 where no GPU may hold one at the last level."""
        cost = self.shared.shortest_blocks
        return self.least_work(cost) if cost else 0

    @property
    def completion(self) -> int:
        """Least completion time."""
        return self.release + self.span

    def offset(self, amount: int, moment: int) -> int:
        """Return the mean-busy-time offset of an amount of work in each iteration.

        `moment`: twice the sum of its parts times the least distance of each from the end of its iteration.
        """
        n = self.iterations
        return n * moment + self.shared.iteration * n * (n - 1) * amount


def _envelope_sum(cost: Sequence[int], count: int, total: int) -> int:
    """Return the least sum, rounded up, of the convex envelope of a cost over `count` levels that add up to `total`."""
    if count == 0 or len(cost) == 1:
        return count * cost[0]
    for (low, cheap), (high, dear) in pairwise(lower_envelope(list(enumerate(cost, 1)))):
        if total <= count * high:
            return count * cheap - (dear - cheap) * (count * low - total) // (high - low)
    raise AssertionError("a total is at most that of the last level")
