"""When a waiting job will start: its queue is simulated forward many times, with run times and arrivals drawn from the
jobs before (Smith, Taylor and Foster, JSSPP 1999). Described in docs/simulation.md.

Run times are drawn from the jobs of the same user and size first (Smith, Taylor and Foster, JSSPP 1999), and only from
those that lasted longer than the job has run (Downey, IPPS 1997). Jobs that still run count as well: of one that is
drawn it is known that it lasts longer than it has run, so that one of those that lasted longer still is drawn in its
place. So draws follow the estimator of Kaplan and Meier (Efron, Berkeley Symposium 1967).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from jigsaw_opt.errors import JigsawError, UsageError, out_of_range
from jigsaw_opt.problem.workload import LARGEST, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.live.start_prediction import MOST_DAYS, ClusterQueue, PastJobs, StartPrediction
from jigsaw_opt.scheduling.policy import JobState, Observation, Policy, PolicySetting
from jigsaw_opt.simulation.engine.event_log import JobStatistics, Trigger
from jigsaw_opt.simulation.engine.running import Running
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.text import called, duration, printable

_ENOUGH = 5
"""From so many jobs that lasted longer a run time is drawn; where there are fewer, from a wider group."""
_ALIKE = 0.5
"""So often a run time has the rank, among those that are longer, that others of its group have in a simulation."""


class RunTimes:
    """Run times of jobs on their GPUs.

    `ended`: jobs that ended, each with the microseconds that it lasted. `running`: jobs that run, each with the
    microseconds that it has run.
    """

    def __init__(self, ended: Iterable[tuple[TraceJob, int]], running: Iterable[tuple[TraceJob, int]] = ()) -> None:
        self._groups: dict[object, list[tuple[int, bool]]] = {}
        known = [*((job, us, True) for job, us in ended), *((job, us, False) for job, us in running)]
        for job, lasted_us, is_over in sorted(known, key=lambda one: one[0].submit_us):
            for group in _groups(job):
                self._groups.setdefault(group, []).append((lasted_us, is_over))
        self._sorted = {group: sorted(times) for group, times in self._groups.items()}

    def draw(self, job: TraceJob, run_us: int, random: Random, periods: dict[object, float] | None = None) -> int:
        """Draw how many microseconds a job lasts that has run for `run_us`, which is less; at most its time limit.

        Where no job lasted longer, it lasts `x` times as long as it has run with probability `1 / x`.
        """
        lasted_us = max(run_us + 1, self._drawn(job, run_us, random, periods))
        if job.time_limit_us is not None:
            lasted_us = max(run_us + 1, min(lasted_us, job.time_limit_us))
        return min(LARGEST, lasted_us)

    def _drawn(self, job: TraceJob, run_us: int, random: Random, periods: dict[object, float] | None) -> int:
        times: Sequence[tuple[int, bool]] = ()
        group: object = None
        for group in _groups(job):
            times = self._sorted.get(group, ())
            longer = bisect_right(times, (run_us, True))
            # Jobs that still run count as longer ones, but only ended ones say how long: there must be enough of these.
            if sum(is_over for _, is_over in times[longer : longer + 4 * _ENOUGH]) >= _ENOUGH:
                break
        known_us = run_us
        if periods is not None and not run_us and times:
            in_order = self._groups[group]
            first = int(periods.setdefault(group, random.random()) * max(1, len(in_order) - _ENOUGH + 1))
            known_us, is_over = in_order[first + random.randrange(min(_ENOUGH, len(in_order)))]
            if is_over:
                return known_us
        # A job that still runs says only that the run time is longer than its own: another longer one is drawn.
        while (longer := bisect_right(times, (known_us, True))) < len(times):
            rank = random.random()
            if periods is not None and random.random() < _ALIKE:
                rank = periods.setdefault(("rank", group), rank)
            known_us, is_over = times[longer + int(rank * (len(times) - longer))]
            if is_over:
                return known_us
        return int(max(1, known_us) / (1.0 - random.random()))


def _groups(job: TraceJob) -> Iterator[object]:
    """Yield the groups that a job belongs to, the narrowest first."""
    if job.user is not None:
        yield job.user, job.gpus
        yield job.user
    if job.queue is not None:
        yield "queue", job.queue, job.gpus
        yield "queue", job.queue
    yield job.gpus
    yield None


def lasting(job: TraceJob, lasted_us: int) -> TraceJob:
    """Return a job with another duration."""
    own = TraceJob.lasting(job.name, job.submit_us, job.gpus, lasted_us)
    return replace(job, model=own.model, iterations=own.iterations)


def arrivals(jobs: Sequence[TraceJob], now_us: int, days: int, random: Random) -> Iterator[TraceJob]:
    """Yield jobs that arrive in the next days: each day those of a day that is drawn of the days up to now.

    Days begin at the time of day that it is now, so that arrivals follow the hours. There are none where the jobs go
    back for less than a day.
    """
    submitted = [job.submit_us for job in jobs]
    known = (now_us - submitted[0]) // _DAY_US if jobs else 0
    for day in range(days if known else 0):
        back = random.randint(1, known)
        first, end = (bisect_left(submitted, now_us - k * _DAY_US) for k in (back, back - 1))
        for k in range(first, end):
            own = {"name": f"{day}:{k}", "submit_us": submitted[k] + (back + day) * _DAY_US}
            yield replace(jobs[k], **own, after=None, array=None, array_limit=None)  # type: ignore[arg-type]


class TakenOver(Simulation):
    """A simulation that begins with the jobs of a cluster as they are at a moment.

    `setting`: the cluster and who decides. The workload has a job for each number below `ClusterQueue.next_job`, and
    then those that arrive later. `queue`: the jobs at the beginning. What they are and how much they have to do is as
    the workload says. `done`: work done of each of these jobs. `ended`: jobs that ended before, in this order, with the
    microseconds that each lasted; some policies learn from them.
    """

    def __init__(
        self, setting: Setting, queue: ClusterQueue, done: Mapping[int, int], ended: Iterable[tuple[TraceJob, int]] = ()
    ) -> None:
        super().__init__(setting)
        self.now_us, self._queue_jobs = queue.now_us, queue.jobs
        self._failing.down, self._failing.dead, self._under_way.dead = queue.down, queue.dead, queue.dead
        running = {index for index, seen in queue.jobs.items() if seen.share is not None}
        ended_before = [index for index in range(queue.next_job) if index not in queue.jobs]
        waiting = queue.jobs.keys() - running
        later = {index for index in waiting if queue.jobs[index].job.submit_us > queue.now_us}
        held = sorted((waiting if queue.memory is None else waiting & set(queue.unknown)) - later)
        known = queue.jobs.keys() - later - set(held)
        self._arrivals.restore(known, ended_before, held)
        self._arrivals.submitted = queue.next_job
        self._arrivals.later = sorted((queue.jobs[index].job.submit_us, index) for index in later)
        new = self._arrivals.arrive()
        arrived, self._apart = known.union(new), set(queue.apart)
        self._statistics.update((index, JobStatistics(0)) for index in self._arrivals.held)
        for index, seen in queue.jobs.items():
            if index not in arrived:
                continue
            job = self._submitted(index)
            active = replace(seen, job=job, work=setting.performance.work(job), done=done[index])
            start_us = queue.now_us - active.run_us
            self._active[index] = active
            self._statistics[index] = JobStatistics(0, start_us if index in running else None, active.done)
            if index in running:
                self._under_way.running[index] = Running.begun(active, setting, active.done, start_us, queue.now_us)
        shares = dict.fromkeys(active.share for active in self._active.values() if active.share is not None)
        self._event_log.crowd.set(len(self._active), self.now_us)
        self._under_way.begin(tuple(shares), self.now_us)
        self._event_log.hold(shares, setting.server_of, self.now_us)
        new = list(self._active) if queue.memory is None else [*queue.arrived, *new]
        self._trigger = Trigger(True, queue.wake_us, new, list(queue.ended), list(queue.stopped))
        if queue.memory is None:
            self._policy.learn(ended)
        else:
            self._policy.restore(queue.memory, self._observation(self._trigger))

    def _waiting(self, index: int) -> JobState:
        made = super()._waiting(index)
        return replace(made, job=self._submitted(index))

    def _submitted(self, index: int) -> TraceJob:
        """Return a job with the time at which it is submitted."""
        job, seen = self.setting.workload.jobs[index], self._queue_jobs.get(index)
        if seen is None or seen.job.submit_us == job.submit_us:
            return job
        return replace(job, submit_us=seen.job.submit_us)

    def _observation(self, trigger: Trigger) -> Observation:
        """Return what the policy sees: neither the jobs that run apart from it, nor their GPUs."""
        found, apart = super()._observation(trigger), self._apart
        if not apart:
            return found
        jobs = {index: active for index, active in found.jobs.items() if index not in apart}
        shares = tuple(share for share in found.shares if share.jobs[0] not in apart)
        return replace(found, jobs=jobs, shares=shares, down=self._closed)

    @property
    def _closed(self) -> frozenset[int]:
        """GPUs that the policy may put nothing on."""
        return self._failing.down.union(*(self._active[index].gpus for index in self._apart))

    def _decision_us(self) -> int | None:
        if self._apart and (self._active.keys() == self._apart or len(self._closed) == self.setting.gpu_count):
            return None
        return super()._decision_us()

    def _watch_idleness(self, decision: Decision) -> None:
        if not self._apart:
            super()._watch_idleness(decision)

    def _apply(self, shares: tuple[Share, ...], stopped: frozenset[int]) -> int:
        kept = tuple(share for share in self._under_way.shares if share.jobs[0] in self._apart)
        return super()._apply((*kept, *shares), stopped)

    def _end(self, running: Running, share: Share) -> Share:
        rest, index = super()._end(running, share), running.active.index
        if index in self._apart:
            self._apart.remove(index)
            self._trigger.ended.remove(index)
        # Of a job that ran and ended before the first round the policy knows nothing.
        if index in self._trigger.arrived:
            self._trigger.arrived.remove(index)
            self._trigger.ended.remove(index)
        return rest

    def has_started(self, asked: Collection[int], starts: dict[int, int]) -> bool:
        """Note when jobs that run by now started, and return whether all have that are asked about.

        `starts`: by number when a job started, in microseconds; entries are added.
        """
        for index in asked:
            statistics = self._statistics.get(index)
            if statistics is not None and statistics.start_us is not None:
                starts.setdefault(index, statistics.start_us)
        return len(starts) == len(asked)


_MOST_NUMBERED = 1_000_000
"""Jobs of a queue and of those that left it: a simulation has a place for each number."""
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_OVERDUE_US = 600_000_000
"""A job that waits no longer may do so for reasons that pass."""


def predict_starts(
    setting: Setting,
    queue: ClusterQueue,
    jobs: Sequence[int],
    past: PastJobs | None,
    samples: int = 200,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> list[StartPrediction]:
    """Simulate a queue forward `samples` times, and note when jobs start.

    For each job, in the order of `jobs`, when it starts in each simulation.

    `setting`: the cluster, how fast jobs run there, and who decides; its workload is not looked at. `past`: what run
    times and arrivals are drawn from; None for jobs that last as they state, and no arrivals: then there is one
    simulation. `seed`: seed of all draws. The first simulations of a seed are the same whatever `samples` is. `stop`:
    is asked after each simulation whether to be content with those that there are.
    """
    if samples < 1:
        raise out_of_range("samples", f"there is at least 1 simulation, not {samples}")
    if past is not None and not past.ended:
        raise UsageError("no job has ended before, so there is nothing to tell how long jobs last", code="empty")
    if past is None:
        samples = 1
    if queue.next_job > _MOST_NUMBERED:
        told = f"the queue has numbered {queue.next_job:,} jobs, and at most {_MOST_NUMBERED:,} are simulated"
        raise UsageError(told, code="too-large")
    draws = _Draws(setting, queue, past)
    starts: list[dict[int, int]] = []
    while len(starts) < samples and not (starts and stop()):
        starts.append(_starts_us(setting, queue, jobs, draws, f"{seed}/{len(starts)}"))
    found = []
    for number in jobs:
        job, starts_us = queue.jobs[number].job, tuple(sorted(one[number] for one in starts if number in one))
        one = StartPrediction(job.name, queue.now_us, starts_us, len(starts))
        found.append(replace(one, warning=_overdue(one, job, setting.round_us)))
    return found


def predict_start_live(
    known: PolicySetting,
    policy: Policy,
    options: Mapping[str, str],
    queue: ClusterQueue,
    job: int,
    past: PastJobs | None,
    samples: int,
    seed: int,
) -> StartPrediction:
    """Return when a waiting job will start, as `predict_starts` does, for a policy with options.

    `past`: jobs that ended before, from which is drawn; None for nothing to draw from.
    """
    of = known.cluster, Workload("queue", ()), known.performance, None, known.round_us, known.restart_us, known.seed
    setting = Setting(*of, None, policy, options)
    return predict_starts(setting, queue, [job], past, samples, seed)[0]


def _overdue(prediction: StartPrediction, job: TraceJob, round_us: int) -> str:
    """Return why a prediction is not to be trusted whose job has waited although it would start at once; else ""."""
    waited_us, latest_us = prediction.now_us - job.submit_us, prediction.simulated_us(0.5)[1]
    at_once = latest_us is not None and latest_us <= prediction.now_us + round_us
    if not at_once or waited_us <= _OVERDUE_US:
        return ""
    held = f", and the file says that it is held by {job.held_by}" if job.held_by else ""
    return (
        f"{called('job', printable(job.name))} has waited for {duration(waited_us)} although by this policy and cluster"
        f" it would start at once{held}: the policy or the cluster is another than the one that decides, so do not"
        " trust this prediction"
    )


class _Draws:
    """Draws of the future of a queue."""

    def __init__(self, setting: Setting, queue: ClusterQueue, past: PastJobs | None) -> None:
        self._setting, self._queue, self.past = setting, queue, past
        self.run_us = {index: self._productive_us(one) for index, one in queue.jobs.items()}
        ended = () if past is None else past.ended
        self.ended = [(job, job.duration_us or setting.performance.alone_us(job)) for job in ended]
        running = [(one.job, self.run_us[k]) for k, one in queue.jobs.items() if one.share is not None]
        self._times = RunTimes(self.ended, running)

    def _productive_us(self, active: JobState) -> int:
        """Return how much of its duration a job has behind it, which on fast GPUs is more than the time that it ran."""
        job, ran_us = active.job, active.run_us - active.starts * self._setting.restart_of(active.job)
        if active.share is None or not _is_drawn(job):
            return max(0, ran_us)
        hour = lasting(job, _HOUR_US)
        (speed,) = self._setting.performance.speeds(active.share, [hour], [0])
        return max(0, ran_us * speed.rate * _HOUR_US // self._setting.performance.work(hour))

    def jobs(self, random: Random) -> dict[int, TraceJob]:
        """Return the jobs of the queue by number, with durations that are drawn."""
        seen = {index: one.job for index, one in self._queue.jobs.items()}
        if self.past is None:
            return seen
        periods: dict[object, float] = {}
        return {
            index: lasting(job, self._times.draw(job, self.run_us[index], random, periods)) if _is_drawn(job) else job
            for index, job in seen.items()
        }

    def done(self, jobs: Mapping[int, TraceJob]) -> dict[int, int]:
        """Return the work done of each job."""
        done = {index: one.done for index, one in self._queue.jobs.items()}
        for index, job in jobs.items() if self.past is not None else ():
            if (lasts_us := job.duration_us) is not None:
                done[index] = self._setting.performance.work(job) * self.run_us[index] // lasts_us
        return done

    def arrivals(self, jobs: Mapping[int, TraceJob], days: int, random: Random) -> Sequence[TraceJob]:
        """Return the jobs that arrive in the next days."""
        if self.past is None or not self.past.arrive:
            return ()
        known = sorted((*self.past.ended, *jobs.values()), key=lambda job: job.submit_us)
        return tuple(arrivals(known, self._queue.now_us, days, random))


def _is_drawn(job: TraceJob) -> bool:
    """Return whether a job's duration is drawn: it states none, or no more than that."""
    return job.iterations is None or job.duration_us is not None


def _starts_us(setting: Setting, queue: ClusterQueue, asked: Sequence[int], draws: _Draws, seed: str) -> dict[int, int]:
    """Return when jobs start in one simulation, without those that start later than can be simulated, or never."""
    jobs = draws.jobs(Random(seed))
    done, days = draws.done(jobs), 1
    starts: dict[int, int] = {}
    while True:
        later = draws.arrivals(jobs, days, Random(f"{seed}/arrivals"))
        at = next(iter(jobs.values()))  # jobs that have ended are as the one before or, at the beginning, the first
        known = list[TraceJob]()
        for at in (at := jobs.get(index, at) for index in range(queue.next_job)):
            # Numbers follow the order of submission in a workload; `TakenOver` knows the times of those that do not.
            least_us = known[-1].submit_us if known else 0
            in_order_us = min(max(least_us, at.submit_us), max(least_us, queue.now_us))
            known.append(at if at.submit_us == in_order_us else replace(at, submit_us=in_order_us))
        workload = Workload("queue", (*known, *later))
        simulation = TakenOver(replace(setting, workload=workload), queue, done, draws.ended)
        until_us = queue.now_us + days * _DAY_US if later else None
        try:
            simulation.run(lambda: simulation.has_started(asked, starts), until_us)  # noqa: B023
        except JigsawError:  # some wait for ever
            return starts
        if len(starts) == len(asked) or not later or days > MOST_DAYS // 2 or simulation.outcome.hindrance:
            return starts
        days *= 2
