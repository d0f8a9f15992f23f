"""Jobs whose models are known by segments: iterations alone or in a timetable (specification: iteration)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import UsageError, argument, missing_option
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.costs import needed_bytes, transfer_us
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.memo import memoised
from jigsaw_opt.scheduling.performance.protocol import GOODPUT, RAW, ByIterations, Speed, rate_of
from jigsaw_opt.scheduling.performance.shared_gpus import SharedGpus
from jigsaw_opt.solvers.allocation.packing.generation import Timetables
from jigsaw_opt.text import nearest


class Profiled(ByIterations):
    """Rates from the models of an instance document.

    A job alone at full depth takes, an iteration, as long as its slowest worker and the exchange of its buckets one
    after the other over the ring of its servers (specification: ring), without contention. Everything else has a
    timetable.

    `efficiency`: whether iterations below full depth count by their progress where a model's efficiency tells it
    (``goodput``), or as whole ones (``raw``); `models` are without efficiency then. `needs_links`: true: nothing tells
    how fast jobs on servers are that no links join, so that none can be simulated.
    `timetables`: timetables of coschedules, by iterations in a period, that policies of these models have found.
    """

    name = "profiled"
    needs_links = True

    def __init__(self, cluster: Cluster, models: Mapping[str, Model], efficiency: str = GOODPUT) -> None:
        self.cluster, self.efficiency, self._given = cluster, efficiency, models
        if efficiency == RAW:
            models = {name: altered(model, efficiency=None) for name, model in models.items()}
        self.figures = self.models = models
        self._shared = SharedGpus(cluster, models)
        self._routes = self._shared.routes
        self.timetables = Timetables()

    def counting(self, efficiency: str) -> Profiled:
        """Return the same models, with iterations below full depth counted as `efficiency` says."""
        return self if efficiency == self.efficiency else Profiled(self.cluster, self._given, efficiency)

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: its model, a GPU that can run it, or its number of iterations."""
        model = self.models.get(job.model)
        if model is None:
            return f"no model {job.model!r}; {nearest(job.model, sorted(self.models))}"
        if job.iterations is None:
            return "has no number of iterations"
        fitting = sum(self.cluster.servers[s].gpus for s in self._fitting(model))
        if fitting < job.gpus:
            return f"model {job.model!r} can run on {fitting} GPUs by their type and memory, not on {job.gpus}"
        return None

    def alone_us(self, job: TraceJob) -> int:
        """Return its iterations at full depth on as few servers as possible, the first that can run it.

        Where no links join servers with so many GPUs, nothing is known of its exchange, which is not counted.
        """
        assert job.iterations is not None
        return job.iterations * self._packed_us(job.model, job.gpus)

    @memoised
    def _packed_us(self, name: str, gpus: int) -> int:
        placement = self._packed(name, gpus)
        if len(placement) > 1 and self._routes.channel(dict(placement)) is None:
            return self._slowest(name, placement)[-1]
        return self._iteration(name, placement)[0]

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: type or memory of its GPUs do not suffice, or it has no timetable.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if self._timetabled(share, jobs):
            return self._shared.refuses(share, jobs)
        fitting = set(self._fitting(self.models[jobs[0].model]))
        if not fitting.issuperset(server for server, _ in self._shared.place(share.gpus)):
            return f"model {jobs[0].model!r} cannot run on these GPUs: their type or memory"
        return None

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speeds by the plan or timetable of the share, or of the job alone.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if not self._timetabled(share, jobs):
            iteration_us, exchange_us = self._alone_on(share, jobs[0])
            return (Speed(rate_of(iteration_us), None, exchange_us / iteration_us),)
        found = self._shared.iterations(share, jobs)
        assert found is not None  # the engine has asked `refuses`
        speeds = [Speed(rate_of(one.us, one.progress or Fraction(1)), is_raw=one.progress is None) for one in found]
        if share.slowdown is not None:  # the foreground uses links as long as alone, jobs of one GPU use none
            exposed = self._alone_on(share, jobs[0])[1] / float(found[0].us)
            speeds[0] = replace(speeds[0], exchange=exposed)
        return tuple(speeds)

    def _alone_on(self, share: Share, job: TraceJob) -> tuple[int, int]:
        """Return microseconds of an iteration alone on all GPUs of a share, and those of them on links."""
        placement = self._shared.place(share.gpus)
        iteration_us, exchange_us = self._iteration(job.model, placement)
        return iteration_us, exchange_us if len(placement) > 1 else 0

    def _timetabled(self, share: Share, jobs: Sequence[TraceJob]) -> bool:
        """Return whether it is not one job at full depth on all GPUs of the share."""
        several = len(jobs) > 1 or len(share.gpus) > jobs[0].most  # or what is left of several
        return several or share.slowdown is not None or any(not isinstance(depth, FullDepth) for depth in share.depths)

    def _fitting(self, model: Model) -> list[int]:
        """Return servers that can hold a worker at full depth."""
        need = needed_bytes([(model.state_bytes, model.activation_bytes()[-1])])
        types = set(model.gpu_types)
        return [k for k, s in enumerate(self.cluster.servers) if s.gpu_type in types and s.gpu_memory >= need]

    def _packed(self, name: str, gpus: int) -> tuple[tuple[int, int], ...]:
        """Return GPUs on the largest servers first, so on as few as possible, that links join if that can be."""
        fitting = sorted(self._fitting(self.models[name]), key=lambda k: -self.cluster.servers[k].gpus)
        parts: dict[int, list[int]] = {}
        for k in fitting:
            parts.setdefault(self._routes.component[k], []).append(k)
        placements = [self._filled_up(part, gpus) for part in parts.values()]
        whole = [placement for placement in placements if sum(count for _, count in placement) == gpus]
        return min(whole, key=len) if whole else self._filled_up(fitting, gpus)

    def _filled_up(self, servers: Sequence[int], count: int) -> tuple[tuple[int, int], ...]:
        """Return so many GPUs of the first servers, or all that there are."""
        widths = [self.cluster.servers[k].gpus for k in servers]
        starts = accumulate(widths, initial=0)
        used = ((k, min(width, count - start)) for k, width, start in zip(servers, widths, starts, strict=False))
        return tuple(sorted((k, gpus) for k, gpus in used if gpus > 0))

    def _slowest(self, name: str, placement: tuple[tuple[int, int], ...]) -> list[int]:
        """Return when the slowest worker has done each block, in microseconds."""
        model, servers = self.models[name], self.cluster.servers
        blocks = [model.block_us(servers[k].gpu_type) for k, _ in placement]
        return [max(times) for times in zip(*blocks, strict=True)]

    @memoised
    def _iteration(self, name: str, placement: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        """Return microseconds of an iteration, and those of them after the last block."""
        slowest, workers = self._slowest(name, placement), sum(count for _, count in placement)
        end = self._exchanged_us(self.models[name], slowest, placement, workers) if workers > 1 else slowest[-1]
        return max(end, slowest[-1]), max(0, end - slowest[-1])

    def _exchanged_us(
        self, model: Model, ready: Sequence[int], placement: tuple[tuple[int, int], ...], workers: int
    ) -> int:
        """Return when the last bucket is exchanged if bucket ``b`` of all workers is ready at ``ready[b-1]``."""
        channel = self._routes.channel(dict(placement))
        if channel is None:
            names = ", ".join(self.cluster.servers[k].name for k, _ in placement)
            raise UsageError(f"no links join {names}", code="empty")
        end = 0
        for ready_us, payload in zip(ready, model.bucket_bytes(), strict=True):
            # One bucket after the other, from the output to the input, each as soon as the slowest worker has it.
            end = max(end, ready_us) + transfer_us(payload, workers, workers, channel.rate, channel.latency_us)
        return end


def profiled(source: Path | None, cluster: Cluster, models: Mapping[str, Model] | None = None) -> Profiled:
    """Take the models of the instance document `source`, or those that are given."""
    if source is None and models is None:
        message = f"performance 'profiled' needs an instance with models: as {argument('cluster')}, or profiled:FILE"
        raise missing_option("performance", message)
    return Profiled(cluster, models or {} if source is None else load_instance(source).models)
