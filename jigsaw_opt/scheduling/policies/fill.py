"""Foreground jobs keep their GPUs to the end; background jobs get GPUs without one, and the holes of the others.

Foreground jobs start in order of submission, and one that does not fit holds those behind it. Background jobs make way
for them. GPUs without a foreground job go to background jobs, in order of submission or those with the least time left
first; one that does not fit is passed over. Under `fill` those of one GPU that are left share GPUs with a foreground
job, each where it runs fastest; under `separate` they wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jigsaw_opt.errors import missing_option
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus, place_unheld_first, started_in_turn
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation

_SLOWDOWNS = ("1.1", "1", "1.02", "1.05", "1.2", "1.3", "1.5", "2")
_Models = frozenset[str]


@dataclass(slots=True)
class _FilledGpus:
    """A foreground job and the background jobs in its holes."""

    front: JobState
    gpus: tuple[int, ...]
    back: list[JobState] = field(default_factory=list)

    @property
    def models(self) -> _Models:
        """Models in the background."""
        return frozenset(active.job.model for active in self.back)

    @property
    def has_room(self) -> bool:
        """Whether a GPU has the foreground alone."""
        return len(self.back) < len(self.gpus)

    def share(self, slowdown: float | None) -> Share:
        """Return the share in which the foreground job runs with the jobs in its holes."""
        jobs = (self.front.index, *(active.index for active in self.back))
        return Share(jobs, self.gpus, (), slowdown if self.back else None)


@dataclass(slots=True)
class _ForegroundFirst(RigidScheduler):
    """The policy at work.

    `slowdown`: what background jobs may slow a foreground job down to; None where they share no GPUs.
    """

    policy = "separate"
    slowdown: float | None = None
    _worth: dict[object, int] = field(default_factory=dict, init=False)

    def decide(self, observation: Observation) -> Decision:
        """Place the foreground, then the background on GPUs of its own, then the rest of it in holes."""
        jobs = observation.jobs.values()
        back = [active for active in jobs if not active.job.foreground]
        if self.options["order"] == "shortest":
            back.sort(key=lambda one: (self.setting.performance.alone_us(one.job) * (one.left / one.work), one.index))
        alone = {
            active.index: active.share
            for active in back
            if active.share and (len(active.share.jobs), len(active.gpus)) == (1, active.job.gpus)
        }
        front = [active for active in jobs if active.job.foreground]
        filled, free = self._foreground(front, alone.values(), observation)
        own = self._own_gpus(back, alone, free)
        if self.slowdown is not None:
            self._fill(filled, [active for active in back if active.index not in own and active.job.gpus == 1])
        return Decision((*(one.share(self.slowdown) for one in filled.values()), *own.values()))

    def _foreground(
        self, front: Sequence[JobState], alone: Iterable[Share], observation: Observation
    ) -> tuple[dict[int, _FilledGpus], FreeGpus]:
        """Return the foreground jobs that run, and the GPUs that they leave."""
        filled = {active.index: _FilledGpus(active, active.share.gpus) for active in front if active.share is not None}
        running = [one.share(None) for one in filled.values()]
        free, unheld = (
            FreeGpus(self.setting, shares, observation.down, observation.dead)
            for shares in (running, [*running, *alone])
        )
        by_number = {active.index: active for active in front if active.share is None}
        started = started_in_turn(
            self.setting,
            by_number.values(),
            lambda job, held: place_unheld_first(unheld, free, job, self.options["placement"], held),
        )
        filled |= {k: _FilledGpus(by_number[k], share.gpus) for share in started for k in share.jobs}
        return filled, free

    def _own_gpus(self, back: Iterable[JobState], alone: Mapping[int, Share], free: FreeGpus) -> dict[int, Share]:
        """Return shares of background jobs on GPUs without a foreground job; those that have such GPUs keep them."""
        own = {index: share for index, share in alone.items() if free.has(share.gpus)}
        for share in own.values():
            free.remove(share.gpus)
        for active in back:
            gpus = None if active.index in own else free.place(active.job, self.options["placement"])
            if gpus is not None:
                own[active.index] = Share((active.index,), gpus)
        return own

    def _fill(self, filled: Mapping[int, _FilledGpus], left: Iterable[JobState]) -> None:
        """Leave background jobs in the holes where they are, and add those that wait."""
        waiting = []
        for active in left:
            one = None if active.share is None else filled.get(active.share.jobs[0])
            if one is None or active.share is None or active.share.gpus != one.gpus:
                waiting.append(active)
            else:
                one.back.append(active)
        hopeless: set[object] = set()
        for active in waiting:
            kind = active.job.model, active.job.gpu_types
            if kind not in hopeless:
                open_to = [one for one in filled.values() if one.has_room and self._speed(one, active) > 0]
                if open_to:
                    max(open_to, key=lambda one: self._speed(one, active)).back.append(active)
                else:
                    hopeless.add(kind)

    def _speed(self, one: _FilledGpus, active: JobState) -> int:
        """Return the speed of a job of one GPU if it joined a foreground job; 0 if it cannot."""
        key = (one.front.job.model, one.gpus, one.models, active.job.model, active.job.gpu_types)
        if key not in self._worth:
            of_model = {other.job.model: other for other in (*one.back, active)}
            others = [other for model, other in of_model.items() if model != active.job.model]
            trial = _FilledGpus(one.front, one.gpus, [active, *others])
            jobs = [trial.front.job, *(other.job for other in trial.back)]
            share, performance = trial.share(self.slowdown), self.setting.performance
            gpu_type = self.setting.pool_of[one.gpus[0]].gpu_type
            can = gpu_type in self.setting.pool_choice.types_of(active.job) and len(jobs) <= len(one.gpus) + 1
            can = can and performance.refuses(share, jobs) is None
            self._worth[key] = performance.speeds(share, jobs, [0] * len(jobs))[1].rate if can else 0
        return self._worth[key]


class _Fill(_ForegroundFirst):
    policy = "fill"


def _start_fill(setting: ClusterSetting, options: Mapping[str, str]) -> _ForegroundFirst:
    if not isinstance(setting.performance, Profiled):
        raise missing_option("performance", "policy 'fill' needs jobs whose models are known by segments")
    return _Fill(setting, options, float(options["slowdown"]))


_PLACEMENTS = ("consolidated", *(name for name in PLACEMENTS if name != "consolidated"))
_OPTIONS = {"order": ("submission", "shortest"), "placement": _PLACEMENTS}
_READS = frozenset({"foreground"})
_WORDS = "foreground jobs first, and background jobs "
SEPARATE = NamedPolicy("separate", f"{_WORDS}on GPUs without one", _ForegroundFirst, _OPTIONS, _READS)
FILL = NamedPolicy(
    "fill",
    f"{_WORDS}in their holes and on other GPUs",
    _start_fill,
    {"slowdown": _SLOWDOWNS, **_OPTIONS},
    _READS,
    shares_gpus=True,
)
