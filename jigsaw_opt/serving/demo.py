"""A cluster that is played: the jobs of a trace come to a service, run as fast as it expects, and end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError as NotAnsweredError
from contextlib import suppress
from itertools import count

from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.instances.gpus import data_sheet
from jigsaw_opt.instances.profiles import estimate_name, profile
from jigsaw_opt.instances.recipes import BATCHES
from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import LiveScheduler
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.remedies import speed_in
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.serving.service import EventRequest, Service
from jigsaw_opt.simulation.inputs.workload_changes import with_models, without_too_wide

_log = logging.getLogger(__name__)
SPEED_UP = 120
"""So much faster than the clock of the machine a demonstration goes."""
CLUSTER, WORKLOAD = "8x8:v100", "week"
AHEAD_US = 2 * 3_600_000_000
"""Jobs of so long come at the beginning of a demonstration, so that there is a queue at once."""
_LOAD, _LIMIT, _SEGMENTS, _SEED = 1.15, 2, 6, 0
_TICK_S, _TICKS_A_REPORT, _PATIENCE_S = 0.25, 4, 10.0
_OUTAGES = ("server_drained", "server_lost", "server_cordoned")
_OUTAGE_US = 3 * 3_600_000_000  # one begins so often, and lasts the last third of it


def models_for(cluster: Cluster) -> dict[str, Model] | None:
    """Return estimated models of known networks on the types of GPU of a cluster; None where no data sheet is known."""
    types = sorted({one.gpu_type for one in cluster.servers if data_sheet(one.gpu_type) is not None})
    return {estimate_name(*one): profile(*one, types, _SEGMENTS) for one in BATCHES.items()} if types else None


def jobs_for(live: LiveScheduler) -> tuple[TraceJob, ...]:
    """Return jobs of the bundled trace that a cluster can run, with drawn models that keep their durations."""
    trace = without_too_wide(workload_from(WORKLOAD), lambda _: live.cluster.gpu_count)
    performance = live.read(lambda state: state.setting.performance)
    if isinstance(performance, Profiled):
        trace = with_models(trace, performance, sorted(performance.models), _SEED)
    return trace.jobs


class FastClock:
    """A clock that begins now and goes faster than that of the machine."""

    def __init__(self, speed_up: int = SPEED_UP) -> None:
        self._speed_up, self._start_us, self._start_ns = speed_up, time.time_ns() // 1000, time.monotonic_ns()

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return self._start_us + (time.monotonic_ns() - self._start_ns) * self._speed_up // 1000


class TracePlayer:
    """Who plays the users and the machines of a service.

    Jobs come as in a trace, at a rate that a little more than fills the cluster, and again under other names when the
    trace is over. Whatever runs, also jobs of others, goes on as fast as the performance model of the service says.
    From time to time a server is out of use.

    `service`: one that has been started. `jobs`: those of the trace; jobs too wide for the cluster are left out.
    `ahead_us`: how much earlier every job comes.
    """

    def __init__(self, service: Service, jobs: Sequence[TraceJob], ahead_us: int = 0) -> None:
        self._service, self._done, self._out, self._ahead_us = service, dict[str, int](), "", ahead_us
        cluster = service.live.cluster
        self._servers = [server.name for server in cluster.servers]
        self._jobs = [job for job in jobs if job.iterations and job.gpus <= cluster.gpu_count]
        alone_us = service.live.read(lambda state: state.setting.performance.alone_us)
        self._alone_us = {job.name: alone_us(job) for job in self._jobs}
        asked_us = sum(job.gpus * self._alone_us[job.name] for job in self._jobs)
        self._lasts_us = max(1, round(asked_us / (_LOAD * cluster.gpu_count)))
        self._began_us = self._last_us = service.clock()
        self._coming, self._ticks = self._arrivals(), 0
        self._next = next(self._coming)

    def _arrivals(self) -> Iterator[tuple[int, Plain]]:
        """Yield when each job comes, in microseconds from the beginning, and its event."""
        last_us = max(1, *(job.submit_us for job in self._jobs))
        for turn in count():
            for job in self._jobs:
                name = f"{job.name}.{turn}" if turn else job.name
                stated = {"name": name, "model": job.model, "gpus": job.gpus, "iterations": job.iterations}
                stated["time_limit_us"] = _LIMIT * self._alone_us[job.name]  # some policies need one
                at_us = turn * self._lasts_us + job.submit_us * self._lasts_us // last_us
                yield at_us, {"event": "submit", "job": stated}

    def run(self, over: threading.Event) -> None:
        """Play until an event is set, or the service takes nothing more."""
        with suppress(JigsawError):
            while not over.wait(_TICK_S):
                self.tick()

    def tick(self) -> None:
        """Tell the service what has happened by now."""
        now_us = self._service.clock()
        events = [*self._outages(now_us - self._began_us), *self._work(now_us - self._last_us)]
        while self._next[0] <= now_us - self._began_us + self._ahead_us:
            events.append(self._next[1])
            self._next = next(self._coming)
        self._last_us, self._ticks = now_us, self._ticks + 1
        for event in events:  # one by one, for others may have cancelled a job meanwhile
            try:
                self._service.post(EventRequest([event], who="demo")).result(_PATIENCE_S)
            except (InvalidInputError, NotAnsweredError) as error:
                _log.warning("%s is not taken: %s", event["event"], error)

    def _work(self, passed_us: int) -> Iterator[Plain]:
        """Yield what running jobs tell after some time: that they have ended, or now and then how far they are."""
        for name, (work, speed) in self._service.live.read(_running).items():
            self._done[name] = self._done.get(name, 0) + speed * passed_us
            if self._done[name] >= work:
                del self._done[name]
                yield {"event": "finish", "job": name}
            elif self._ticks % _TICKS_A_REPORT == 0:
                yield {"event": "progress", "job": name, "iterations": self._done[name] / UNITS}

    def _outages(self, elapsed_us: int) -> Iterator[Plain]:
        number, since_us = divmod(elapsed_us, _OUTAGE_US)
        out = self._servers[5 * number % len(self._servers)] if 3 * since_us >= 2 * _OUTAGE_US else ""
        if out != self._out:
            if self._out:
                yield {"event": "server_back", "server": self._out}
            if out:
                yield {"event": _OUTAGES[number % len(_OUTAGES)], "server": out}
            self._out = out


def _running(state: ClusterState) -> dict[str, tuple[int, int]]:
    """Return the work of each job that runs, and its units a microsecond."""
    return {
        job.active.job.name: (job.active.work, speed_in(state, job.active.share, job) or 0)
        for job in state.jobs.values()
        if job.active.share is not None
    }
