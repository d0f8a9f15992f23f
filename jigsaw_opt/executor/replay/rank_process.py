"""What each process of a replay does, from building its workers to handing over what it found."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from operator import ge
from typing import Any

import torch
import torch.distributed as dist

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.exchange.by_bucket import Averaging, GradientExchange
from jigsaw_opt.executor.hosts.host import Host, HostSetting
from jigsaw_opt.executor.processes import TIMEOUT, keep_to_share, report_so_far
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.residents import AbsentWorkers, Residents
from jigsaw_opt.executor.replay.run import Run
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.link_order import LinkOrder, TCPStore
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder
from jigsaw_opt.executor.schedules.presence import PhasePart, phases_of, restarts, seams
from jigsaw_opt.executor.schedules.records import Part, RankReport
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule

_LOGGER = logging.getLogger(__name__)


def run_rank(request: ReplayRequest, usual: PhasePart | None, stages: StagedRun | None) -> list[RankReport] | None:
    """Do the part of this process, which has joined the default process group.

    What each process has found, by rank, in the first one; None in the others.
    """
    process = _RankProcess(request, usual, stages)
    own = process.replay()
    found = [own] * dist.get_world_size() if process.rank == 0 else None
    dist.gather_object(own, found, 0, process.control)
    dist.barrier(process.control)  # nobody leaves while another may still need the store
    return found


class _RankProcess:
    """One process of a group, which goes through the phases of its group whatever the others do.

    `ranks`: for each job, the rank of each worker or slot in its first phase.
    """

    def __init__(self, request: ReplayRequest, usual: PhasePart | None, stages: StagedRun | None) -> None:
        self.request, self.rank, self._usual, self._stages = request, dist.get_rank(), usual, stages
        self.device = device_of_process(request, int(os.environ.get("LOCAL_RANK", self.rank)))
        self.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._main_store, self._connect = _store(self.control)
        groups, jobs, self.gpus = phases_of(request.instance, request.plan)
        self.ranks = [tuple(map(self.gpus.index, parts[0].gpus)) for parts in jobs]
        levels = [{levels for part in parts for levels in part.levels} for parts in jobs]
        for job, planned in [] if usual is None else zip(usual.numbers, usual.plan.jobs, strict=True):
            levels[job].update(planned.levels)
        self._exchanges = self._make_exchanges(chain.from_iterable(groups))
        groups_in_stages = {} if stages is None else stage_groups(stages.schedule)
        hosts = [
            sorted({rank for part in parts for ranks in self._ranks_in(part).values() for rank in ranks})
            for parts in groups
        ]
        # All processes make the groups of all, as torch asks.
        controls = [dist.new_group(ranks, TIMEOUT, "gloo") for ranks in hosts]
        own = next(group for group, ranks in enumerate(hosts) if self.rank in ranks)
        self._all_parts, self._phases = list(chain.from_iterable(groups)), groups[own]
        self._restarts = [restarts(request.instance, groups[own], number) for number in range(len(groups[own]))]
        self._absent = AbsentWorkers(controls[own])
        self._clock = ReplayClock(self.control)
        self._own_clock = self._clock.among(controls[own], hosts[own][0])
        self._checkpoint = Checkpoint(request.checkpoint, request) if request.checkpoint is not None else None
        setting = HostSetting(request, self.device, self._own_clock, self._connect, stages, groups_in_stages)
        self._residents = Residents(setting, list(map(sorted, levels)))
        self._initial: dict[int, dict[str, Any]] = {}
        self._aside: set[int] = set()
        self.done = [0] * len(self.ranks)
        self._ended: tuple[Part, ...] = ()
        self._running: Run | None = None
        report_so_far(self._so_far)

    def _ranks_in(self, part: PhasePart) -> dict[int, tuple[int, ...]]:
        """Return for each job of a phase the rank of each worker or slot."""
        jobs = zip(part.numbers, part.plan.jobs, strict=True)
        return {number: tuple(map(self.gpus.index, job.gpus)) for number, job in jobs}

    def _make_exchanges(self, parts: Iterable[PhasePart]) -> dict[tuple[int, tuple[int, ...]], GradientExchange]:
        """Make the exchange of every data-parallel job on all GPUs that it has in some phase."""
        averaging, found = Averaging(self.request.averaging), dict[tuple[int, tuple[int, ...]], GradientExchange]()
        for part in parts:
            for job, ranks in self._ranks_in(part).items():
                if self.request.instance.jobs[job].model is not None and (job, ranks) not in found:
                    found[job, ranks] = GradientExchange(ranks, averaging)
        return found

    def _so_far(self) -> RankReport:
        """Return what has been measured, while the work goes on."""
        ended, running = self._ended, self._running
        parts = [*ended, *([running.part()] if running is not None and not running.ended else [])]
        return RankReport(parts, {}, self._residents.memory, self.done, self._residents.notes)

    def replay(self) -> RankReport:
        """Do the part of this process in every phase of its group, and then in the baseline."""
        self.done = self._done()
        residents = self._residents
        for number, part in enumerate(self._phases):
            self._enter(number)
            if number == 0:
                _LOGGER.info("jobs begin to sleep" if self.request.dry else "workers are built, training begins")
                if self.device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(self.device)
                self._clock.meet()  # groups run side by side from the start
            residents.note_memory()
            self._carry_out(part)
            residents.note_memory()
            staying = {job for later in self._phases[number + 1 :] for job in later.numbers}
            ended = [job for job in residents.here if job not in staying]
            residents.digest(ended)
            if self._usual is None:
                residents.leave([*ended, *self._put_aside(number)])
        if self._usual is not None:
            self._carry_out_usual(self._usual)
        return RankReport(list(self._ended), residents.digests, residents.memory, self.done, residents.notes)

    def _done(self) -> list[int]:
        """Return how many iterations each job has behind it: those of its last whole checkpoint, if the run goes on."""
        if self._checkpoint is None or not self.request.resume:
            return [0] * len(self.ranks)
        done, passes = self._checkpoint.last_whole(self.ranks, self.control), self.request.passes
        all_passes = [(part, part.repeats or passes) for part in self._all_parts]
        if all(most and all(map(ge, part.done(done), part.iterations(most))) for part, most in all_passes):
            more = "--iterations takes more, except of a plan that counts its phases"
            raise UsageError(
                f"the checkpoint has all of {passes} passes over the plan; {more}", code="empty", path="checkpoint"
            )
        return done

    def _enter(self, number: int) -> None:
        """Build the workers of this process whose jobs begin with a phase, or go on here after a restart."""
        part = self._phases[number]
        first = {part.numbers[k] for k in seams(part.instance, part.plan)[0].jobs}
        for job, ranks in self._ranks_in(part).items():
            state, earlier = None, self._restarts[number].get(job)
            if earlier is not None:
                state = self._absent.bring(job, self._ranks_in(self._phases[earlier])[job], ranks)
            if self.rank in ranks and job in first and job not in self._residents.here:
                self._build(job, ranks, state)

    def _build(self, job: int, ranks: tuple[int, ...], state: dict[str, Any] | None) -> None:
        """Build what this process has of a job that begins, goes on with a state, or resumes from a checkpoint."""

        def restore(hosted: Host) -> None:
            if state is not None:
                hosted.worker.load(state)
                hosted.saved = hosted.worker.iteration  # in the checkpoint since it was let go
            elif self._checkpoint is not None and self.request.resume:
                if self.done[job]:
                    self._checkpoint.load(job, hosted.worker, self.done[job])
                hosted.saved = self.done[job]

        initial = self._residents.enter(job, ranks.index(self.rank), self._exchanges.get((job, ranks)), restore)
        if self._usual is not None:
            self._initial.setdefault(job, initial)

    def _put_aside(self, number: int) -> list[int]:
        """Keep the states of the workers that are here in a phase and restart later; return the jobs."""
        leaving = {job for later in self._restarts for job, earlier in later.items() if earlier == number}
        found = [job for job in self._residents.here if job in leaving]
        for job in found:
            self._absent.put(self._residents.here[job])
        return found

    def _change(self, part: PhasePart, hosted: dict[int, Host], jobs: Collection[int], comes_back: bool) -> None:
        """Let workers go whose jobs are over in a pass, and build those of the next ones."""
        residents = self._residents
        leaving = [k for k in hosted if k not in jobs]
        for job in [hosted.pop(k).job for k in leaving]:
            if part is not self._usual:
                residents.note_memory()
                residents.digest([job])
            if comes_back:
                self._absent.put(residents.here[job])
                self._aside.add(job)
            residents.leave([job])
        for k, (job, ranks) in enumerate(self._ranks_in(part).items()):
            if k in jobs and k not in hosted and self.rank in ranks:
                state = self._initial[job] if part is self._usual else None
                if job in self._aside:
                    self._aside.remove(job)
                    state = self._absent.bring(job, ranks, ranks)
                self._build(job, ranks, state)
                hosted[k] = residents.here[job]
        if part is not self._usual:
            residents.note_memory()

    def _carry_out_usual(self, usual: PhasePart) -> None:
        """Carry out the baseline from the states with which the jobs began."""
        residents, jobs = self._residents, seams(usual.instance, usual.plan)[0].jobs
        _LOGGER.info("the baseline begins")
        self._aside.clear()
        first = {usual.numbers[k] for k in jobs}
        residents.leave([job for job in residents.here if job not in first])
        hosted = {k: residents.here[job] for k, job in enumerate(usual.numbers) if job in residents.here}
        for replica in hosted.values():
            replica.worker.load(self._initial[replica.job])
        self._change(usual, hosted, jobs, comes_back=False)
        self._carry_out(usual)

    def _carry_out(self, part: PhasePart) -> None:
        """Carry out a phase, or the baseline, which takes as many passes as the plan before it and saves nothing."""
        request, usual = self.request, part is self._usual
        schedule = None if self._stages is None else self._stages.schedule
        order = ReplayOrder(part.instance, part.plan, request.backend == "nccl", self.gpus, schedule)
        done = [0] * len(part.numbers) if usual else part.done(self.done)
        assert request.passes is not None, "a request says how often"
        progress = ReplayExtent(done, request.passes if usual else part.repeats or request.passes)
        here = self._residents.here
        hosted = {k: here[job] for k, job in enumerate(part.numbers) if job in here}
        links = LinkOrder(order, progress, self.rank, part.number)
        moments, change = seams(part.instance, part.plan), partial(self._change, part, hosted)
        alone = usual and request.baseline == "alone"
        rules = request.time_triggered and not alone, usual and not alone
        saving = (None, None) if usual else (self._checkpoint, request.every)
        parts = order, progress, self.rank, hosted, links, self._own_clock, moments, change
        self._running = run = Run(*parts, *rules, *saving)
        self._ended = (*self._ended, run.carry_out())
        run.close()
        self._running = None  # it refers to workers that may be let go


def device_of_process(request: ReplayRequest, local: int) -> torch.device:
    """Return the device of this process; on a CPU, give the process its share of the cores and threads."""
    torch.set_num_threads(request.threads)
    if request.device == "cpu":
        keep_to_share(local, int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())))
        return torch.device("cpu")
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _store(control: dist.ProcessGroup) -> tuple[TCPStore | None, Callable[[], TCPStore]]:
    """Return the store that the first process keeps, and what connects to it."""
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    first = TCPStore(host, 0, None, True, TIMEOUT, wait_for_workers=False) if dist.get_rank() == 0 else None
    port = torch.tensor(first.port if first else 0)
    dist.broadcast(port, 0, control)
    return first, partial(TCPStore, host, int(port), None, False, TIMEOUT, wait_for_workers=False)


def stage_groups(schedule: StageSchedule) -> dict[int, dist.ProcessGroup]:
    """Make the groups in which stages exchange, by their number of processes; all processes make them."""
    return {count: dist.new_group(list(range(count)), TIMEOUT) for count in schedule.groups}
