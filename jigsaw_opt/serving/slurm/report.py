"""What a log tells day by day: how wrong predictions were, and waiting and use beside those of the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.log import Entry, read_begun
from jigsaw_opt.serving.slurm.reading import SlurmNode
from jigsaw_opt.simulation.simulate import simulate

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


@dataclass(slots=True)
class _Story:
    """What a log tells of a job: the first prediction of its start, its last start and end, and the simulated start."""

    told: Entry
    predicted: Entry | None = None
    start_us: int | None = None
    end_us: int | None = None
    simulated_us: int | None = None


def report(path: Path) -> dict[str, Any]:
    """Return what a log tells: who decides, the GPUs, and under ``days`` the measures of each day, in seconds."""
    begin, entries = read_begun(path)
    stories = _stories(entries)
    cluster = SlurmCluster([SlurmNode(name, gres, "up") for name, gres in begin["nodes"].items()])
    _simulate([one for one in stories if one.start_us and one.end_us], cluster, begin["policy"], begin["time_us"])
    facts = {name: begin[name] for name in ("policy", "act", "nodes_without_gpus")}
    counts = {"gpus": cluster.cluster.gpu_count, "nodes": len(begin["nodes"]), "jobs": len(stories)}
    counts |= {"jobs_that_wait": sum(one.start_us is None for one in stories)}
    counts |= {"jobs_that_run": sum(one.start_us is not None and one.end_us is None for one in stories)}
    days = _days(stories, begin["time_us"], max(entry["time_us"] for entry in entries), counts["gpus"])
    return {**facts, **counts, "days": list(days)}


def _stories(entries: Collection[Entry]) -> list[_Story]:
    found: dict[str, _Story] = {}
    for entry in entries:
        kind, job = entry["entry"], str(entry.get("job"))
        if kind in ("job", "running"):
            one = found.setdefault(job, _Story(entry))
            if kind == "running":
                one.told, one.start_us, one.end_us = entry, entry["start_us"], None
        elif kind == "predicted" and job in found and entry["middle_us"]:
            found[job].predicted = found[job].predicted or entry
        elif kind == "ended" and job in found:
            found[job].start_us = entry["start_us"] or found[job].start_us
            found[job].end_us = entry["end_us"] or entry["time_us"]
    return list(found.values())


def _simulate(ended: Collection[_Story], cluster: SlurmCluster, policy: str, first_us: int) -> None:
    """Note when the policy would have started jobs, which come when they were submitted, or when the log begins."""
    jobs, ran = list[TraceJob](), {f"j{k}": one for k, one in enumerate(ended)}
    for name, one in ran.items():
        start_us, end_us = one.start_us or 0, one.end_us or 0
        submit_us = max(0, min(max(one.told["submit_us"], first_us), start_us) - first_us)
        made = TraceJob.lasting(name, submit_us, one.told["gpus"], max(0, end_us - start_us))
        types = cluster.types_of(one.told.get("types", ())) or None
        jobs.append(replace(made, time_limit_us=one.told["limit_us"], gpu_types=types))
    if jobs:
        workload = Workload("slurm", tuple(jobs))
        found = simulate(workload, cluster.cluster, policy, round_s=0, restart_s=0, too_wide="skip")
        for record in found.outcome.jobs:
            if record.start_us is not None:
                ran[workload.jobs[record.index].name].simulated_us = record.start_us + first_us


def _days(stories: Collection[_Story], first_us: int, last_us: int, gpus: int) -> Iterator[dict[str, Any]]:
    """Yield the measures of each day: of the jobs that Slurm started on it, and of the time that the log covers."""
    for day_us in range(first_us // _DAY_US * _DAY_US, last_us + 1, _DAY_US):
        begin_us, end_us = max(first_us, day_us), min(last_us, day_us + _DAY_US)
        own = [(one, one.start_us) for one in stories if one.start_us and begin_us <= one.start_us < day_us + _DAY_US]
        told = [(at_us, one.predicted) for one, at_us in own if one.predicted]
        errors_s = [(at_us - guess["middle_us"]) / _SECOND_US for at_us, guess in told]
        inside = [(guess["low_us"] or 0) <= at_us <= (guess["high_us"] or at_us) for at_us, guess in told]
        both = [(one, at_us) for one, at_us in own if one.simulated_us and one.told["submit_us"] >= first_us]
        measures: dict[str, Any] = {
            "day": datetime.fromtimestamp(day_us // _SECOND_US, UTC).date().isoformat(),
            "predictions": len(told),
            "median_error_s": median(map(abs, errors_s)) if told else None,
            "mean_error_s": mean(errors_s) if told else None,
            "inside_interval": mean(inside) if told else None,
            "started": len(own),
            "compared": len(both),
        }
        for who in ("slurm", "policy"):
            starts = {id(one): one.start_us if who == "slurm" else one.simulated_us for one in stories}
            waits_s = [((starts[id(one)] or 0) - one.told["submit_us"]) / _SECOND_US for one, _ in both]
            measures[f"{who}_mean_wait_s"] = mean(waits_s) if both else None
            measures[f"{who}_median_wait_s"] = median(waits_s) if both else None
            used_us = 0
            for one in stories:
                if at_us := starts[id(one)]:
                    till_us = at_us + (one.end_us or last_us) - (one.start_us or 0)
                    used_us += one.told["gpus"] * max(0, min(end_us, till_us) - max(begin_us, at_us))
            measures[f"{who}_use"] = used_us / (gpus * (end_us - begin_us)) if end_us > begin_us else None
        yield measures
