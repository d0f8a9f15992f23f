"""Requests for an instance of own jobs, of words and of the files that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.errors import Problem, argument, malformed
from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.gpu_types import matching_types
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import MOST_GPUS, TraceJob
from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words
from jigsaw_opt.simulation.inputs.own_jobs import OwnJob, OwnRequest, Read, attempt, jobs_of, own_job, with_deadlines
from jigsaw_opt.simulation.inputs.workload_changes import why_too_wide, with_types_of, without_too_wide
from jigsaw_opt.text import Tell, named, readable, say_nothing

TooWide = Literal["refuse", "skip"]


def request_of_words(
    name: str,
    cluster: str,
    jobs: Sequence[str],
    *,
    table: str | None = None,
    columns: str = "",
    too_wide: TooWide = "refuse",
    model: str = "resnet50",
    deadlines: Sequence[str] = (),
    profiles: Sequence[str] = (),
    link: str | None = None,
    tell: Tell = say_nothing,
    **others: Any,
) -> OwnRequest:
    """Read the words and the files that they name, or refuse all that is wrong with them at once.

    `jobs, deadlines`: as `own_job` and `with_deadlines` take them. `table, columns, too_wide, model`: a workload in
    CSV, what it calls its columns, what becomes of jobs that are too wide, and the model of those that state a
    duration. `profiles`: NAME=FILE of measured models. `link`: a file with measured all-reduces. `tell`: is told what
    was read of the workload. `others`: of the request.
    """
    report = Report()

    def read(made: Callable[..., Read], where: str, *given: Any) -> Read | None:
        return attempt(partial(made, *given), argument(where), report)

    own = [job for text in jobs if (job := read(own_job, "job", text))]
    if table:
        own += read(_table, "jobs", table, columns, too_wide, model, cluster, tell) or ()
    own = read(with_deadlines, "deadline", own, deadlines, not report.problems) or own
    measured: dict[str, Mapping[str, Any]] = {}
    for word in profiles:
        measured |= read(_profile, "profile", word, measured) or {}
    rates = read(_link, "link", link) if link else None
    if not report.problems:
        report.problems += _unused(measured, [job.model for job in own])
    report.raise_if_any()
    return OwnRequest(name, cluster, own, measured, link=rates, **others)


def _unused(measured: Mapping[str, Any], models: Sequence[str]) -> Iterator[Problem]:
    """Yield profiles that no job has: their figures would be left out, and those of a data sheet taken instead."""
    for name in measured:
        if name not in models:
            has = f"they have {named([*dict.fromkeys(models)])}"
            yield Problem(argument("profile"), f"no job has the model {name!r}", has, code="unknown-name")


def _table(file: str, columns: str, too_wide: TooWide, model: str, words: str, tell: Tell) -> tuple[OwnJob, ...]:
    """Return the jobs of a workload in CSV that the cluster of these words can run."""

    cluster = attempt(partial(cluster_in_words, words), "cluster", Report())  # what is wrong is told later
    count = MOST_GPUS if cluster is None else cluster.gpu_count
    types = () if cluster is None else tuple(dict.fromkeys(server.gpu_type for server in cluster.servers))
    skipping = too_wide == "skip"

    def accept(job: TraceJob) -> Sequence[str]:
        wide = None if skipping else why_too_wide(job, job.gpus, count)
        return [reason for reason in (wide, _why_not_all(job, types)) if reason is not None]

    source = readable(file)
    found = workload_from(f"csv:{file}", columns, accept)
    workload = without_too_wide(found, lambda job: count, rigid=True)
    if cluster is not None:
        workload = with_types_of(workload, cluster)
    for line in workload.reading_told():
        tell(f"{source}: {line}")
    return jobs_of(workload, model)


def _why_not_all(job: TraceJob, types: Sequence[str]) -> str | None:
    """Return that a job may not have all types of GPU of a cluster of several, which an instance cannot say."""
    allowed = {name for asked in job.gpu_types or types for name in matching_types(asked, types)}
    others = [name for name in types if name not in allowed]
    if len(types) == 1 or not others:
        return None
    return (
        f"job {job.name!r} may not run on GPUs of type {', '.join(others)}, and an instance does not say which types"
        " a job may have: give it a --cluster of its own types"
    )


def _profile(word: str, known: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a measured model by its name; what it holds is checked with the instance."""
    name, _, file = word.partition("=")
    if not name or not file or name in known:
        raise malformed(argument("profile"), f"a profile is NAME=FILE, each name once, not {word!r}")
    return {name: parsed(read_text(file), readable(file), lambda _tree, _report: None)}


def _link(file: str) -> tuple[int, int]:
    """Return bandwidth and latency, rounded to whole microseconds, of measured all-reduces."""
    found = parsed(read_text(file), readable(file), _require_link)["all_reduce"]
    return found["bandwidth"], round(found["latency_us"])


def _require_link(tree: Any, report: Report) -> None:
    found = tree.get("all_reduce")
    if not isinstance(found, dict):
        hint = "jigsaw profile --all-reduce N --json > FILE writes them"
        report.add("$", "holds no measured all-reduces", hint, code="missing-field")
        return
    bandwidth, latency_us = found.get("bandwidth"), found.get("latency_us")
    if not isinstance(bandwidth, int) or not 1 <= bandwidth < 2**53:
        report.add("$.all_reduce.bandwidth", f"must be an integer of at least 1; is {bandwidth!r}", code="out-of-range")
    if isinstance(latency_us, bool) or not isinstance(latency_us, int | float) or not 0 <= latency_us < 2**53:
        report.add("$.all_reduce.latency_us", f"must be a number of at least 0; is {latency_us!r}", code="out-of-range")
