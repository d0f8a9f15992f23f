"""What simulations rest on, in words, with what that means for their figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from jigsaw_opt.scheduling.performance.protocol import RAW
from jigsaw_opt.scheduling.performance.seconds import TypeSpeeds
from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.results.metrics import raw_told
from jigsaw_opt.sweeps.advice import MEASURES
from jigsaw_opt.sweeps.bench.summary import grouped
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.simulations import raw_models_of
from jigsaw_opt.sweeps.task import SweepTask
from jigsaw_opt.sweeps.variants import reads_limits
from jigsaw_opt.text import agreeing, counted

_PERFORMANCE = {
    "seconds": "a job runs as long as the trace says, on any GPUs that it asks for",
    "profiled": "speeds follow from the models' segments and the exchange over their servers' links",
    "epochs": "measured step times of the placement, at the trace's batch size",
    "goodput": "measured step times, with batch and GPUs adapted",
    "table": "measured throughputs by model, type and number of GPUs",
    "stages": "stage times that the trace states",
}
_BY_SPEED = "a job runs as long as the trace says, or longer or shorter by the speed of the type of GPU that it is on"
_CONTENTION = {
    "exclusive": "exclusive: transfers are planned and leave each other alone",
    "fair": "fair: jobs that span servers divide the links among them, all the time",
}
_KNOW_LENGTHS = frozenset({"interleave", "jigsaw", "sjf_bco", "srtf"})


def assumptions(setting: Setting, policies: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what the figures rest on, each with its name; what the seeds say is told by `seeds_told`."""
    words, jobs = setting.words, setting.workload.jobs
    hours = (jobs[-1].submit_us - jobs[0].submit_us) / 3_600_000_000
    yield "workload", f"{words['workload']}: {counted(len(jobs), 'job')}, submitted within {hours:.4g} h"
    servers = counted(len(setting.cluster.servers), "server")
    yield "cluster", f"{words['cluster']}: {counted(setting.gpu_count, 'GPU')} on {servers}"
    kind = setting.performance.name
    speeds = getattr(setting.performance, "type_speeds", None)
    known = {**_PERFORMANCE, "seconds": _BY_SPEED} if speeds is not None else _PERFORMANCE
    yield "performance", f"{kind}: {known[kind]}" if kind in known else kind
    if speeds is not None:
        yield "speeds of GPUs", _speeds(setting, speeds)
    yield "models", _models(setting)
    yield "contention", _CONTENTION.get(contention := str(words["contention"]), contention)
    yield "restart", f"a start on other GPUs takes {words['restart_s']:g} s without progress"
    yield "round", f"decisions every {words['round_s']:g} s" if words["round_s"] else "decisions at once"
    yield "failures", str(words["failures"] or "none")
    estimating = dict.fromkeys(choose(policy)[0].name for policy in policies if reads_limits(policy))
    if estimating:
        limited = [job for job in jobs if job.time_limit_us is not None]
        outlived = sum((job.duration_us or 0) > (job.time_limit_us or 0) for job in limited)
        count, verb = len(limited), agreeing(len(estimating), "goes", "go")
        yield (
            "estimates",
            f"{count:,} of {counted(len(jobs), 'job')} {agreeing(count, 'states', 'state')} a time limit, which"
            f" {' and '.join(estimating)} {verb} by; {outlived:,} {agreeing(outlived, 'runs', 'run')} longer,"
            " and nothing is killed",
        )
    knowing = [policy for policy in policies if knows_lengths(policy)]
    if knowing:
        order = agreeing(len(knowing), "orders", "order")
        yield (
            "known lengths",
            f"{', '.join(knowing)} {order} jobs by the work they have, which a simulation knows exactly",
        )


def knows_lengths(policy: str) -> bool:
    """Return whether a policy, in words, orders jobs by the work that they have, which nobody knows outside."""
    return choose(policy)[0].name in _KNOW_LENGTHS


def efficiency_told(efficiency: str, raw_models: Sequence[str]) -> str:
    """Return what iterations below full depth counted for."""
    if efficiency == RAW:
        return "raw: iterations below full depth count as whole ones"
    told = raw_told(raw_models)
    return f"goodput: an iteration counts by its progress beside one at full depth{told and f'; {told}'}"


def _speeds(setting: Setting, speeds: TypeSpeeds) -> str:
    """Return how fast the types of the cluster are taken to be, and which durations are scaled."""
    types = dict.fromkeys(server.gpu_type for server in setting.cluster.servers)
    stated = ", ".join(f"{name} {float(speeds.of(name) or 0):g}" for name in types)
    source = "as stated" if setting.words["speeds"] else "estimates: measure your own jobs"
    told = sum(job.measured_on is not None for job in setting.workload.jobs)
    of = speeds.reference or "a GPU of speed 1"
    others = counted(len(setting.workload.jobs) - told, "other duration")
    return f"{stated} ({source}); {counted(told, 'job')} ran on a known type, and {others} are taken as on {of}"


def _models(setting: Setting) -> str:
    names = {job.model for job in setting.workload.jobs}
    if setting.words["draw_models"]:
        drawn = counted(len(names), "model")
        return f"each job has one of {drawn}, drawn by the seed: the trace does not say which it had"
    if setting.performance.name == "seconds":
        return "none: jobs have durations only, so no policy gains by placement or sharing"
    return f"{counted(len(names), 'model')}, as the trace says"


def seeds_told(seeds: Sequence[int], figures: Iterable[MeanInterval], draws: bool = True) -> str:
    """Return what the seeds say of chance."""
    told = ", ".join(map(str, seeds))
    if len(seeds) == 1 and not draws:
        return f"{told} alone, so there are no intervals: nothing is drawn, and other seeds change nothing"
    if len(seeds) == 1:
        return f"{told} alone, so there are no intervals"
    intervals = [figure for figure in figures if isfinite(figure.half)]
    if intervals and not any(figure.half for figure in intervals):
        return f"{told}: they change nothing here, as nothing is drawn, so intervals say nothing of other weeks"
    return f"{told}: intervals are Student's t at 95 % over them, of changes paired by seed"


def assumed_in_sweep(tasks: Sequence[SweepTask], rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what a sweep rests on, each with its name: once where all workloads have it in common."""
    found: dict[str, dict[str, str]] = {}
    for workload, own in grouped(tasks, lambda task: task.labels["workload"]).items():
        policies = dict.fromkeys(str(task.labels["policy"]) for task in own)
        for name, text in assumptions(own[0].arguments[0], policies):
            found.setdefault(name, {})[workload] = text
    for name, texts in found.items():
        shared = len(set(texts.values())) == 1
        yield from dict.fromkeys(
            (name, text if shared or name == "workload" else f"{workload}: {text}") for workload, text in texts.items()
        )
    good = [row for row in rows if row.get("error") is None]
    cells = grouped(good, lambda row: (row["workload"], row["policy"])).values()
    values = [[row[key] for row in cell if row.get(key) is not None] for cell in cells for key in MEASURES]
    yield "efficiency", efficiency_told(tasks[0].arguments[0].efficiency, raw_models_of(good))
    seeds = dict.fromkeys(int(task.labels["seed"]) for task in tasks)
    yield "seeds", seeds_told([*seeds], [MeanInterval.of(own) for own in values if own])
