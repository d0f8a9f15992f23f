"""EASY and conservative backfill (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001): jobs start in order of submission,
and later ones start before them where that delays no reservation. Nothing is preempted. Described in
docs/simulation.md.

How long jobs run is estimated by their time limits, or by what their users' last two jobs took (Tsafrir, Etsion and
Feitelson, IEEE TPDS 18(6), 2007). A job that outlives its estimate is expected to take twice as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, NamedTuple

from jigsaw_opt.errors import unsupported
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.option_values import hours, hours_us
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus
from jigsaw_opt.scheduling.plain import TEXT, Plain, checked, fields, listed, rows, whole
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policies.slurm.server_reservations import ServerReservations, StepFunction, freed
from jigsaw_opt.scheduling.policy import NEVER_STOPS, JobState, Observation

_HOUR_US = 3_600_000_000
_UNKNOWN_US = 24 * _HOUR_US
"""What the first job of a user is predicted to take that has no limit."""
BACKFILL_OPTIONS: Mapping[str, Sequence[str]] = {
    "kind": ("easy", "conservative"),
    "reserve": ("gpus", "servers"),
    "estimates": ("limits", "recent"),
    "default_limit": hours("none", "4", "24", "72", "168", least_us=1),
    "placement": PLACEMENTS,
}


class _EstimatedRun(NamedTuple):
    """A job that runs: since when, how long it was estimated to take when it started, and whose it is."""

    start_us: int
    estimate_us: int
    user: str

    def end_us(self, now_us: int) -> int:
        """Return when it is expected to end, which is after now: an estimate that has passed is doubled."""
        estimate_us = self.estimate_us
        while self.start_us + estimate_us <= now_us:
            estimate_us *= 2
        return self.start_us + estimate_us


class _FreeGpusOverTime(StepFunction[int]):
    """Numbers of GPUs that are free."""

    def add(self, gpus: int, start_us: int, end_us: int | None = None) -> None:
        """Free so many GPUs more, or fewer where `gpus` is below 0, from one time to another, or for ever."""
        for k in range(self.at(start_us), len(self.times) if end_us is None else self.at(end_us)):
            self.values[k] += gpus

    def earliest(self, gpus: int, length_us: int) -> int | None:
        """Return the first time from which so many GPUs are free for so long, or None where there is none."""
        start_us = None
        for k, time_us in enumerate(self.times):
            if self.values[k] < gpus:
                start_us = None
            elif start_us is None:
                start_us = time_us
            # Enough GPUs are free from `start_us` to the next entry; after the last entry, for ever.
            if start_us is not None and (k + 1 == len(self.times) or self.times[k + 1] >= start_us + length_us):
                return start_us
        return None


class _Queue(NamedTuple):
    """The jobs that wait, each with its estimate, and the GPUs that are free.

    `ends`: when the jobs that run are expected to end, after now, and their GPUs.
    """

    now_us: int
    waiting: list[tuple[JobState, int]]
    ends: list[tuple[int, tuple[int, ...]]]
    free: FreeGpus


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A reservation of a waiting job: its types by number, its shadow time, and the GPUs that are free then."""

    job: TraceJob
    kinds: Collection[int]
    shadow_us: int
    later: FreeGpus

    def fits_without(self, gpus: tuple[int, ...], placement: str) -> bool:
        """Return whether the job still finds GPUs then without some of them."""
        trial = self.later.copy()
        trial.remove(gpus)
        return trial.place(self.job, placement) is not None


@dataclass(slots=True)
class BackfillScheduler(RigidScheduler):
    """Backfill at work, over jobs in order of submission; who inherits may have another order."""

    policy = "backfill"
    keeps_reservations: ClassVar[bool] = True
    """Whether reservations of conservative backfill stay from one decision to the next."""
    conservative: bool = field(init=False)
    recent: bool = field(init=False)
    default_us: int | None = field(init=False)
    placement: str = field(init=False)
    runs: dict[int, _EstimatedRun] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    reserved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conservative, self.placement = self.options["kind"] == "conservative", self.options["placement"]
        self.recent, limit = self.options["estimates"] == "recent", self.options["default_limit"]
        self.default_us = None if limit == "none" else hours_us(limit)
        by_number = self.conservative and self.options["reserve"] == "gpus"
        if by_number and (self.placement == "consolidated" or len(self.setting.parts) > 1):
            raise unsupported(
                "policy",
                f"{self.policy}:kind=conservative reserves GPUs by their number, wherever they are: on a cluster in"
                " several parts, or with placement=consolidated, take reserve=servers or kind=easy",
            )

    def refuses(self, job: TraceJob) -> str | None:
        """Return why a job cannot run: it has no limit, or asks for too many GPUs."""
        if not self.recent and self.limit_us(job) is None:
            return (
                f"policy {self.policy!r} needs time limits, and job {job.name!r} states none:"
                f" {self.policy}:default_limit=24 takes 24 hours for such jobs, and {self.policy}:estimates=recent"
                " predicts from the last jobs of each user"
            )
        return RigidScheduler.refuses(self, job)

    def decide(self, observation: Observation) -> Decision:
        """Start what may start; all that runs goes on."""
        self._learn(observation)
        now_us, choice = observation.now_us, self.setting.pool_choice
        waiting = [one for one in observation.jobs.values() if one.share is None and choice.of(one.job)]
        if self.conservative and observation.dead:  # it counts GPUs, and must not count on what no links join
            most = self.setting.most_joined(observation.down, observation.dead)
            waiting = [one for one in waiting if one.job.gpus <= max(most[kind] for kind in choice.types_of(one.job))]
        lengths = [(one, self._estimate_us(one.job)) for one in self.in_order(waiting, observation)]
        free = FreeGpus(self.setting, observation.shares, observation.down, observation.dead)
        shares = list(observation.shares)
        ends = [(self.runs[index].end_us(now_us), share.gpus) for share in shares for index in share.jobs]
        by_number = self._conservative if self.conservative else self._easy
        start = self._by_server if self.options["reserve"] == "servers" else by_number
        for active, gpus in start(_Queue(now_us, lengths, ends, free)):
            self._begin(active, now_us)
            ends.append((self.runs[active.index].end_us(now_us), gpus))
            shares.append(Share((active.index,), gpus))
        wakes = (run.end_us(now_us) for run in self.runs.values())
        waits = len(shares) - len(observation.shares) < len(waiting)
        return Decision(tuple(shares), min(wakes, default=None) if waits else None)

    def limit_us(self, job: TraceJob) -> int | None:
        """Return for how long a job may run; None where nothing says so."""
        return self.default_us if job.time_limit_us is None else job.time_limit_us

    def in_order(self, waiting: list[JobState], observation: Observation) -> list[JobState]:
        """Return the jobs that wait in the order in which they may start."""
        return waiting

    def learn(self, ended: Iterable[tuple[TraceJob, int]]) -> None:
        """Note the run times of the last jobs of each user."""
        for job, lasted_us in ended:
            self._note_length(job.user or "", lasted_us)

    def state(self) -> Plain:
        """Return the estimates and reservations."""
        return {
            "runs": [{"job": index, **run._asdict()} for index, run in self.runs.items()],
            "lengths": [{"user": user, "last": last} for user, last in self.lengths.items()],
            "reserved": [[index, *one] for index, one in self.reserved.items()],
        }

    def restore(self, state: Plain, observation: Observation) -> None:
        """Restore estimates and reservations from a state, which is checked."""
        run = fields(job=whole(), start_us=whole(observation.now_us), estimate_us=whole(low=1), user=TEXT)
        user = fields(user=TEXT, last=listed(whole(low=1), 1, 2))
        checked(state, fields(runs=listed(run), lengths=listed(user), reserved=rows(3, whole())))
        self.runs = {
            one["job"]: _EstimatedRun(one["start_us"], one["estimate_us"], one["user"]) for one in state["runs"]
        }
        self.lengths = {one["user"]: list(one["last"]) for one in state["lengths"]}
        self.reserved = {index: (start_us, kind) for index, start_us, kind in state["reserved"]}
        if not self.runs.keys() >= observation.running_as_decided:
            raise ValueError("every job that runs has an estimate")

    # Estimates ----------------------------------------------------------------------------------------------

    def _learn(self, observation: Observation) -> None:
        """Note what the jobs took that have ended; one that a failure has stopped starts anew."""
        for index in (*observation.ended, *observation.stopped):
            run = self.runs.pop(index, None)
            self.reserved.pop(index, None)
            if run is not None and index not in (*observation.stopped, *observation.unfinished):
                self._note_length(run.user, observation.now_us - run.start_us)
        for index in observation.adopted:
            active = observation.jobs[index]
            self._begin(active, observation.now_us - active.run_us)

    def _note_length(self, user: str, lasted_us: int) -> None:
        """Note how long the last job of a user lasted."""
        if self.recent:
            last = self.lengths.setdefault(user, [])
            last.append(max(1, lasted_us))
            del last[:-2]

    def _estimate_us(self, job: TraceJob) -> int:
        """Return how long a job that starts is estimated to hold its GPUs."""
        limit_us = self.limit_us(job)
        if limit_us is not None:
            limit_us += self.setting.restart_of(job)
        last = self.lengths.get(job.user or "")
        if not last:
            return _UNKNOWN_US if limit_us is None else limit_us
        mean_us = max(1, sum(last) // len(last))
        return mean_us if limit_us is None else min(mean_us, limit_us)

    def _begin(self, active: JobState, now_us: int) -> None:
        self.runs[active.index] = _EstimatedRun(now_us, self._estimate_us(active.job), active.job.user or "")
        self.reserved.pop(active.index, None)

    # EASY ---------------------------------------------------------------------------------------------------

    def _easy(self, queue: _Queue) -> Iterator[tuple[JobState, tuple[int, ...]]]:
        """Yield the jobs that start, with their GPUs.

        The first job that does not fit has a reservation at its shadow time. A later one starts if it is expected to
        end by then, or if the first one still finds GPUs then without those of the later one. Where there are several
        types of GPU, so has the first one that shares no type with those that have one.
        """
        heads = list[_Reservation]()
        for active, length_us in queue.waiting:
            gpus = self._beside(heads, active.job, queue.now_us + length_us, queue.free)
            if gpus is not None:
                yield active, gpus
                continue
            kinds = self.setting.pool_choice.kinds_of(active.job)
            if not any(kind in head.kinds for head in heads for kind in kinds):
                found = self._shadow(active.job, queue)
                if found is not None:  # else too few GPUs are up
                    heads.append(_Reservation(active.job, kinds, *found))

    def _beside(
        self, heads: Sequence[_Reservation], job: TraceJob, end_us: int, free: FreeGpus
    ) -> tuple[int, ...] | None:
        """Take GPUs for a job that is expected to end at `end_us` and then delays no reservation, or return None."""
        late = [head for head in heads if end_us > head.shadow_us]
        delaying: set[int] = set()
        while (gpus := free.place(job, self.placement, delaying)) is not None:
            if all(head.fits_without(gpus, self.placement) for head in late):
                for head in late:
                    head.later.remove(gpus)
                return gpus
            # These GPUs delay a reservation: those of another type are tried.
            free.add(gpus)
            kind = self.setting.pool_of[gpus[0]].kind
            delaying.update(pool.number for pool in self.setting.pools if pool.kind == kind)
        return None

    def _shadow(self, job: TraceJob, queue: _Queue) -> tuple[int, FreeGpus] | None:
        """Return when jobs that run are expected to leave enough GPUs, and those free then; None for never."""
        for end_us, later in freed(queue.free, queue.ends):
            if later.copy().place(job, self.placement) is not None:
                return end_us, later
        return None

    # Whole servers ------------------------------------------------------------------------------------------

    def _by_server(self, queue: _Queue) -> Iterator[tuple[JobState, tuple[int, ...]]]:
        """Yield the jobs that start, with their GPUs.

        Jobs that do not start have whole servers reserved, which are made anew each time: all of them, or under EASY
        the first one of those that share a type.
        """
        now_us, reserving = queue.now_us, set[int]()
        reservations = ServerReservations(self.setting, now_us, queue.free, queue.ends)
        widths, lengths = (
            [active.job.gpus for active, _ in queue.waiting],
            [length_us for _, length_us in queue.waiting],
        )
        least = zip(queue.waiting, _least_behind(widths), _least_behind(lengths), strict=True)
        for (active, length_us), fewest, shortest_us in least:
            if not reservations.may_start(fewest, shortest_us):  # nor may anybody behind; reservations are not kept
                break
            found = reservations.earliest(active.job, length_us, self.placement)
            if found is None:  # too few GPUs are up
                continue
            start_us, gpus = found
            kinds = self.setting.pool_choice.kinds_of(active.job)
            if start_us == now_us:
                reservations.start(now_us + length_us, gpus)
                yield active, gpus
            elif self.conservative or reserving.isdisjoint(kinds):
                reserving.update(kinds)
                reservations.reserve(start_us, start_us + length_us, gpus)

    # Conservative -------------------------------------------------------------------------------------------

    def _conservative(self, queue: _Queue) -> Iterator[tuple[JobState, tuple[int, ...]]]:
        """Yield the jobs that start, with their GPUs.

        In order of submission every job moves to the earliest time that delays no reservation of another. Where the
        reservations do not fit any more, as after an estimate was too short, all are made anew in that order. If they
        are not kept for the next decision, none is made once nobody behind could start now.
        """
        now_us, profiles, reserved = queue.now_us, self._of_running(queue), dict[int, tuple[int, int]]()
        for active, length_us in queue.waiting:
            if active.index in self.reserved:
                start_us, kind = self.reserved[active.index]
                reserved[active.index] = start_us, kind = max(now_us, start_us), kind
                profiles[kind].add(-active.job.gpus, start_us, start_us + length_us)
        if min(min(profile.values) for profile in profiles.values()) < 0:
            profiles, reserved = self._of_running(queue), {}
        self.reserved = {}
        widths = [active.job.gpus for active, _ in queue.waiting]
        for (active, length_us), gpus, least in zip(queue.waiting, widths, _least_behind(widths), strict=True):
            if not self.keeps_reservations and max(profile.values[0] for profile in profiles.values()) < least:
                break  # nobody behind can start, so their reservations would tell nothing
            if active.index in reserved:
                start_us, kind = reserved[active.index]
                # Its own reservation is not in its way when the job looks for an earlier time.
                profiles[kind].add(gpus, start_us, start_us + length_us)
            kinds = self.setting.pool_choice.kinds_of(active.job)
            times = [(profiles[kind].earliest(gpus, length_us), kind) for kind in kinds]
            first = min(((us, rank, kind) for rank, (us, kind) in enumerate(times) if us is not None), default=None)
            if first is None:  # too few GPUs are up
                continue
            earliest_us, _, kind = first
            profiles[kind].add(-gpus, earliest_us, earliest_us + length_us)
            others = [pool.number for pool in self.setting.pools if pool.kind != kind]
            found = queue.free.place(active.job, self.placement, others) if earliest_us == now_us else None
            if found is not None:
                yield active, found
            elif self.keeps_reservations:
                self.reserved[active.index] = earliest_us, kind

    def _of_running(self, queue: _Queue) -> dict[int, _FreeGpusOverTime]:
        """Return what is free of each type when only the jobs that run hold GPUs, until they are expected to end."""
        profiles: dict[int, _FreeGpusOverTime] = {}
        for pool in self.setting.pools:
            profiles.setdefault(pool.kind, _FreeGpusOverTime(queue.now_us, 0)).values[0] += sum(
                map(queue.free.count_on, pool.servers)
            )
        for end_us, gpus in queue.ends:
            profiles[self.setting.pool_of[gpus[0]].kind].add(len(gpus), end_us)
        return profiles


def _least_behind(values: Sequence[int]) -> list[int]:
    """Return for each value the least of it and those behind it."""
    return list(accumulate(reversed(values), min))[::-1]


_WORDS = "EASY or conservative backfill: in order of submission; others start where they delay nobody"
BACKFILL = NamedPolicy("backfill", _WORDS, BackfillScheduler, BACKFILL_OPTIONS, NEVER_STOPS)
