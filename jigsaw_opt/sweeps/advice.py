"""What another policy would save on a workload, and which settings that depends on most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.scheduling.policies import RECORDED
from jigsaw_opt.scheduling.policy import choose, names
from jigsaw_opt.simulation.engine.recorded import simulation_of, why_no_record
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.request import SimulationRequest, changed, read_settings
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.job_times import JobChanges, job_changes
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.simulations import raw_models_of, task_of
from jigsaw_opt.sweeps.task import SweepTask
from jigsaw_opt.sweeps.variants import Variant, reads_limits, variants
from jigsaw_opt.text import nearest

MEASURES = {
    "mean_completion_h": "mean completion, h",
    "p95_completion_h": "95th percentile of completion, h",
    "mean_waiting_h": "mean waiting, h",
    "median_waiting_h": "median waiting, h",
    "p99_waiting_h": "99th percentile of waiting, h",
    "longest_waiting_h": "longest waiting, h",
    "makespan_h": "makespan, h",
    "cluster_efficiency": "cluster efficiency",
    "worst_fairness": "worst finish-time fairness",
    "unfair_share": "share of jobs above a fair share's time",
    "gpu_hours": "GPU-hours held",
    "restarts": "restarts",
    "mean_restarts": "restarts a job",
}
"""Measures that are compared, and what tables call them."""
_SEEDS = (0, 1, 2)
_STAND_IN = "fifo"
"""The policy that others are compared with where the trace tells no record and nobody says which is in use."""
_NONE_ENDED = "none has ended"
_MORE_IS_BETTER = frozenset({"cluster_efficiency"})
_Changes: TypeAlias = frozenset[tuple[str, Any]]
"""Parts of a simulation by name that are others than those of the base; the policy is always among them."""
_Rows = Mapping[int, Mapping[str, Any]]
"""Rows without an error by seed."""


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """The figures of a policy over the seeds.

    `seeds`: the seeds that gave a result. `error`: what the first simulation failed with that did, or that none has
    ended; empty where all is well. `figures`: for each measure, its interval; without measures that no simulation has.
    `change`: for each measure, the change from today's policy in per cent, paired by seed; empty for that policy
    itself.
    """

    policy: str
    seeds: tuple[int, ...]
    error: str
    figures: Mapping[str, MeanInterval]
    change: Mapping[str, MeanInterval]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a change of one setting on the advised policy.

    `percent`: change of the measure in per cent, paired by seed.
    """

    setting: str
    before: str
    after: str
    chosen: bool
    percent: MeanInterval


@dataclass(frozen=True, slots=True)
class Advice:
    """The result of a comparison of policies.

    `measure`: by which policies and effects are ranked. `today`: the policy that others are compared with, in words.
    `best`: the policy with the best mean of the measure over the most seeds; None where no simulation has ended.
    `policies`: what each came to, the best first. `effects`: for each setting its change with the greatest effect under
    the best policy, the greatest first. `runs, finished`: simulations in all, and those that have ended. `left_out`:
    policies and changes that cannot be, with the reason. `otherwise`: what today's policy comes to with the one other
    option that is best for it; None where none is better than today's, or another policy than today's is not the best.
    `against_otherwise`: the change from that to the best policy, as in `PolicyFigures`. `job_changes`: what the best
    policy changes against today's job by job, with the first seed; None where today's is the best. `raw_models`: models
    whose iterations below full depth counted as whole ones in a simulation, as nobody knows what they are worth.
    """

    measure: str
    today: str
    best: str | None
    policies: Sequence[PolicyFigures]
    effects: Sequence[Effect]
    all_effects: Sequence[Effect]
    runs: int
    finished: int
    left_out: Mapping[str, str]
    otherwise: PolicyFigures | None = None
    against_otherwise: MeanInterval | None = None
    job_changes: JobChanges | None = None
    raw_models: tuple[str, ...] = ()


class Advisor:
    """Compares policies on one workload and cluster, then changes the best one's settings one at a time.

    The options of today's policy are changed too: what they save is not to be credited to another policy.

    `base`: what is simulated; its policy and its seed do not count. `baseline`: the policy to compare with, in words;
    None for what the trace says happened, where it says it of every job, and else ``fifo``.
    `policies`: others, in words; None for all that work with what is simulated. `seeds`: each once; None for three
    where something is drawn, and one where nothing is.
    """

    def __init__(
        self,
        base: SimulationRequest,
        baseline: str | None = None,
        policies: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        measure: str = "mean_completion_h",
    ) -> None:
        if measure not in MEASURES:
            message = f"no measure {measure!r}; {nearest(measure, MEASURES)}"
            raise UsageError(message, code="unknown-value", path="measure")
        if seeds is not None and not seeds:
            raise UsageError("at least one seed is drawn from", code="empty", path="seeds")
        self.seeds, self.measure = tuple(dict.fromkeys(_SEEDS if seeds is None else seeds)), measure
        # Only the seed changes what jobs there are: everything is read once a seed, and variants share it.
        found = read_settings(replace(base, policy=baseline or _STAND_IN, seed=seed) for seed in self.seeds)
        why_not = None if baseline is not None else why_no_record(found[0].workload)
        recorded = baseline is None and why_not is None
        self.today = RECORDED.name if recorded else baseline or _STAND_IN
        self.settings = {seed: setting.under(self.today) for seed, setting in zip(self.seeds, found, strict=True)}
        self.words = {**self.settings[self.seeds[0]].words, "seed": base.seed}
        self.left_out: dict[str, str] = {}
        if why_not is not None:
            self.left_out[RECORDED.name] = f"not the baseline, for which {self.today} stands in: {why_not}"
        for words in policies or ():
            self.settings[self.seeds[0]].under(words)
        others = policies if policies is not None else tuple(self._fitting())
        self.policies = tuple(dict.fromkeys((self.today, *others)))
        if seeds is None and not self.draws:
            self.seeds = self.seeds[:1]
            self.settings = {seed: self.settings[seed] for seed in self.seeds}
        self._tasks: dict[_Changes, dict[int, SweepTask]] = {}
        self._variants: list[Variant] = []
        self._todays: list[Variant] = []

    @property
    def draws(self) -> bool:
        """Whether a seed may change anything: models, failures, what `sia` solves, and policies of other packages."""
        modules = (type(choose(words)[0]).__module__ for words in self.policies)
        return bool(
            self.words["draw_models"]
            or self.words["failures"]
            or self.settings[self.seeds[0]].performance.name == "goodput"
            or not all(module.startswith("jigsaw_opt.") for module in modules)
        )

    def compared(self) -> Iterator[Setting]:
        """Return what is simulated with the first seed: under today's policy, then under the others."""
        return (self.settings[self.seeds[0]].under(words) for words in self.policies)

    def compare(self, run: Callable[[Sequence[SweepTask]], None]) -> None:
        """Simulate every policy with every seed, the first seed first; see `_run`.

        Today's policy comes first and those that plan reservations, which takes long, come last: who stops it meanwhile
        has a comparison of the others.

        `run`: simulates what has no row yet.
        """
        order = sorted(self.policies, key=lambda words: (words != self.today, reads_limits(words)))
        self._run(map(_changes_of, order), run)

    def vary(self, record: Record, run: Callable[[Sequence[SweepTask]], None]) -> None:
        """Simulate changes of the best policy's settings and of today's options, once compared; see `_run`.

        `record`: rows so far, with those of `compare`. `run`: simulates what has no row yet.
        """
        best = self._best(record)
        if best is None:
            return
        todays = (variant for variant in variants(self.words) if variant.part == "policy")
        self._todays = [] if best == self.today else self._possible(todays, self.today)
        others = () if best == RECORDED.name else variants({**self.words, "policy": best})
        self._variants = self._possible(others, best)
        every = [
            *(_changes_of(self.today, today) for today in self._todays),
            *(_changes_of(best, variant) for variant in self._variants),
        ]
        self._run(every, run)

    def advice(self, record: Record) -> Advice:
        """Return what the rows that are there say."""
        best = self._best(record)
        tasks = {task.key for by_seed in self._tasks.values() for task in by_seed.values()}
        every = [] if best is None else self._effects(best, record)
        greatest: dict[str, Effect] = {}
        for effect in every:
            greatest.setdefault(effect.setting, effect)
        otherwise, against = self._otherwise(best, record)
        return Advice(
            self.measure,
            self.today,
            best,
            sorted(
                map(self._of_policy(record), self.policies), key=lambda policy: self._rank(policy.figures, policy.seeds)
            ),
            list(greatest.values()),
            every,
            len(tasks),
            len(tasks & record.rows.keys()),
            dict(self.left_out),
            otherwise,
            against,
            self._job_changes(best, record),
            raw_models_of(record.rows[key] for key in tasks & record.rows.keys()),
        )

    # Simulations --------------------------------------------------------------------------------------------

    def _possible(self, found: Iterable[Variant], policy: str) -> list[Variant]:
        """Return the changes that can be simulated under a policy; others are left out, with the reason."""
        possible = []
        for variant in found:
            try:
                self._tasks_of(_changes_of(policy, variant))
            except JigsawError as error:
                self.left_out[f"{variant.setting} {variant.after}"] = str(error)
            else:
                possible.append(variant)
        return possible

    def _run(self, every: Iterable[_Changes], run: Callable[[Sequence[SweepTask]], None]) -> None:
        """Simulate each with every seed; the first seed of all comes first, so that a part is a comparison."""
        by_seed = [self._tasks_of(changes) for changes in every]
        tasks = {(task := row[seed]).key: task for seed in self.seeds for row in by_seed}
        run([*tasks.values()])

    def _tasks_of(self, changes: _Changes) -> dict[int, SweepTask]:
        """Return a task a seed, remembered."""
        if changes not in self._tasks:
            parts = dict(changes)
            compared = parts.keys() == {"policy"} and parts["policy"] in self.policies
            self._tasks[changes] = {
                seed: task_of(changed(setting, **parts), with_jobs=compared and seed == self.seeds[0])
                for seed, setting in self.settings.items()
            }
        return self._tasks[changes]

    def _fitting(self) -> Iterable[str]:
        """Return policies that work with what is simulated; estimates take the place of time limits that jobs lack."""
        for name in names():
            for words in (name, f"{name}:estimates=recent") if reads_limits(name) else (name,):
                try:
                    simulation_of(self.settings[self.seeds[0]].under(words))
                except JigsawError as error:
                    self.left_out[name] = str(error)
                else:
                    self.left_out.pop(name, None)
                    yield words
                    break

    # Figures ------------------------------------------------------------------------------------------------

    def _rows(self, changes: _Changes, record: Record) -> _Rows:
        found = {seed: record.rows.get(task.key) for seed, task in self._tasks.get(changes, {}).items()}
        return {seed: row for seed, row in found.items() if row is not None and row.get("error") is None}

    def _best(self, record: Record) -> str | None:
        rows = {words: self._rows(_changes_of(words), record) for words in self.policies}
        ranks = {words: self._rank(_figures(own), tuple(own)) for words, own in rows.items() if own}
        return min(ranks, key=lambda words: ranks[words], default=None)

    def _rank(self, figures: Mapping[str, MeanInterval], seeds: Sequence[int]) -> tuple[int, float]:
        """Return the rank of a policy, lower is better; policies that were simulated with fewer seeds come behind."""
        if self.measure not in figures:
            return 0, 0.0
        mean = figures[self.measure].mean
        return -len(seeds), -mean if self.measure in _MORE_IS_BETTER else mean

    def _of_policy(self, record: Record) -> Callable[[str], PolicyFigures]:
        today = self._rows(_changes_of(self.today), record)

        def figures(words: str) -> PolicyFigures:
            rows = self._rows(_changes_of(words), record)
            keys = (task.key for task in self._tasks.get(_changes_of(words), {}).values())
            errors = (record.rows[key]["error"] for key in keys if key in record.rows)
            change = _changes(today, rows) if words != self.today else {}
            error = next(filter(None, errors), "" if rows else _NONE_ENDED)
            return PolicyFigures(words, tuple(rows), error, _figures(rows), change)

        return figures

    def _otherwise(self, best: str | None, record: Record) -> tuple[PolicyFigures | None, MeanInterval | None]:
        """Return what today's policy comes to with its best other option, and the change from that to the best one."""
        if best is None or not self._todays:
            return None, None
        figures = self._of_policy(record)
        today, *others = (figures(words) for words in (self.today, *(variant.value for variant in self._todays)))
        found = min((today, *others), key=lambda other: self._rank(other.figures, other.seeds))
        if found is today or not found.seeds:
            return None, None
        rows = (self._rows(_changes_of(words), record) for words in (found.policy, best))
        return found, _changes(*rows).get(self.measure)

    def _job_changes(self, best: str | None, record: Record) -> JobChanges | None:
        """Return what the best policy changes job by job, with the first seed, where rows have all jobs."""
        seed, jobs = self.seeds[0], self.settings[self.seeds[0]].workload.jobs
        if best in (None, self.today):
            return None
        rows = (self._rows(_changes_of(words), record).get(seed, {}) for words in (self.today, str(best)))
        before, after = (row.get("job_times", ()) for row in rows)
        setting = self.settings[seed]
        least_us = setting.round_us + setting.restart_us
        return job_changes(jobs, before, after, least_us) if len(before) == len(after) == len(jobs) else None

    def _effects(self, best: str, record: Record) -> list[Effect]:
        """Return simulated changes of the best policy's settings, the greatest first."""
        choices = [words for words in self.policies if words not in (best, RECORDED.name)]
        others = (Variant("policy", best, words, True, "policy", words) for words in choices)
        before = self._rows(_changes_of(best), record)
        effects = []
        for other in (*others, *self._variants):
            percent = _changes(before, self._rows(_changes_of(best, other), record)).get(self.measure)
            if percent is not None:
                effects.append(Effect(other.setting, other.before, other.after, other.chosen, percent))
        return sorted(effects, key=lambda effect: -abs(effect.percent.mean))


def _changes_of(policy: str, variant: Variant | None = None) -> _Changes:
    return frozenset({"policy": policy, **({} if variant is None else {variant.part: variant.value})}.items())


def _figures(rows: _Rows) -> dict[str, MeanInterval]:
    values = {name: [row[name] for row in rows.values() if row.get(name) is not None] for name in MEASURES}
    return {name: MeanInterval.of(found) for name, found in values.items() if found}


def _changes(before: _Rows, after: _Rows) -> dict[str, MeanInterval]:
    """Return changes of the measures in per cent of the mean before, over the seeds that both have."""
    seeds = before.keys() & after.keys()
    found: dict[str, MeanInterval] = {}
    for name in MEASURES:
        pairs = [(before[seed].get(name), after[seed].get(name)) for seed in sorted(seeds)]
        change = MeanInterval.of_changes([(old, new) for old, new in pairs if old is not None and new is not None])
        if change is not None:
            found[name] = change
    return found
