"""Make an instance of your own jobs from a few words; what nobody said is assumed, and told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from jigsaw_opt.cli.clusters.simulate_setting import add_too_wide
from jigsaw_opt.cli.common.options import add_depth, warn_of_spb
from jigsaw_opt.cli.common.output import answer, emit, note, print_json, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, malformed, missing_option
from jigsaw_opt.text import named, readable

if TYPE_CHECKING:
    from jigsaw_opt.problem.cluster import Cluster
    from jigsaw_opt.problem.rules.report import Report
    from jigsaw_opt.problem.workload import TraceJob
    from jigsaw_opt.simulation.inputs.own_jobs import Assumption, OwnJob, OwnRequest

_CLUSTER = "2x4:v100"
_MODEL = "resnet50"
Read = TypeVar("Read")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--cluster", metavar="SERVERSxGPUS:TYPE", help=f"as in 4x8:v100 or 2x4:v100+1x8:a100 (default: {_CLUSTER})"
    )
    parser.add_argument(
        "--job",
        action="append",
        default=[],
        metavar="NAME:MODEL:WORKERS:ITERATIONS",
        help="a job, as in a:resnet50:4:100, a:resnet50@128:4:100 (batch) or a:gpt2_small:4:30s; several times",
    )
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="[JOB=]TIME",
        help="when a job has to have ended, or all jobs have, as in a=2h, 3d or 90min; several times",
    )
    parser.add_argument("--jobs", metavar="FILE", help="a workload in CSV, as of jigsaw simulate; also day, week")
    parser.add_argument("--columns", default="", metavar="OURS=THEIRS,...", help="what the CSV calls its columns")
    add_too_wide(parser)
    parser.add_argument(
        "--model",
        default=_MODEL,
        metavar="MODEL",
        help=f"model of jobs in CSV that state a duration (default: {_MODEL})",
    )
    parser.add_argument(
        "--profile", action="append", default=[], metavar="NAME=FILE", help="a model of jigsaw profile or convert"
    )
    link = parser.add_mutually_exclusive_group()
    link.add_argument("--bandwidth", type=int, metavar="BYTES", help="bytes per second of a server's link")
    link.add_argument(
        "--link", metavar="FILE", help="bandwidth and latency as measured: of jigsaw profile --all-reduce N --json"
    )
    parser.add_argument(
        "--segments", type=int, default=6, metavar="N", help="most segments of an estimated model (default: 6)"
    )
    add_depth(parser, "full")
    parser.add_argument(
        "--objective",
        default="makespan",
        metavar="NAME",
        help="makespan, weighted_completion or period (default: makespan)",
    )
    parser.add_argument(
        "-o", "--output", type=file_or_stdout, metavar="FILE", help="where to write (default: standard output)"
    )
    parser.add_argument("--json", action="store_true", help="print what was assumed as JSON; takes -o")


def run(arguments: argparse.Namespace) -> int:
    """Read the words, or ask for them; make the instance; write it and tell what was assumed."""
    from jigsaw_opt.documents import encode_instance
    from jigsaw_opt.simulation.inputs.own_jobs import own_instance

    if arguments.json and arguments.output is None:
        raise missing_option("--json", "--json prints what was assumed, so the instance goes to a file: -o")
    files = [word.partition("=")[2] for word in arguments.profile]
    require_output(arguments.output, arguments.jobs, arguments.link, *files)
    _ask(arguments)
    instance, assumed = own_instance(_request(arguments))
    emit(encode_instance(instance), arguments.output)
    _tell(assumed, arguments.json)
    warn_of_spb(arguments.depth)
    return 0


def _tell(assumed: Sequence[Assumption], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"assumed": [asdict(one) for one in assumed]})
        return
    for one in assumed:
        note(f"assumed: {one.what}: {one.value}")


def _ask(arguments: argparse.Namespace) -> None:
    """Ask at a terminal for what was not given, where no job was."""
    from jigsaw_opt.instances.architectures import ARCHITECTURES

    if arguments.job or arguments.jobs:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise missing_option("--job", "no jobs: give --job NAME:MODEL:WORKERS:ITERATIONS, or --jobs FILE")
    if arguments.cluster is None:
        arguments.cluster = answer(f"cluster, SERVERSxGPUS:TYPE [{_CLUSTER}]: ") or None
    known = ", ".join((*ARCHITECTURES, *(word.partition("=")[0] for word in arguments.profile)))
    while job := answer(f"job, NAME:MODEL:WORKERS:ITERATIONS, of {known} (nothing: done): "):
        arguments.job.append(job)


def _request(arguments: argparse.Namespace) -> OwnRequest:
    """Return the words as they were parsed."""
    from jigsaw_opt.simulation.inputs.own_jobs import OwnRequest, own_job, with_deadlines

    problems: list[Problem] = []
    jobs = [job for text in arguments.job if (job := _read(partial(own_job, text), "--job", problems))]
    if arguments.jobs:
        jobs += _read(partial(_table, arguments), "--jobs", problems) or ()
    deadlines = partial(with_deadlines, jobs, arguments.deadline, complete=not problems)
    jobs = _read(deadlines, "--deadline", problems) or jobs
    measured: dict[str, Mapping[str, Any]] = {}
    for word in arguments.profile:
        measured |= _read(partial(_profile, word, measured), "--profile", problems) or {}
    link = _read(partial(_link, arguments.link), "--link", problems) if arguments.link else None
    if not problems:
        problems += _unused(measured, [job.model for job in jobs])
    if problems:
        raise InvalidInputError(problems)
    return OwnRequest(
        arguments.output.stem if arguments.output else "own",
        arguments.cluster or _CLUSTER,
        jobs,
        measured,
        arguments.bandwidth,
        arguments.segments,
        arguments.depth,
        arguments.objective,
        link,
    )


def _unused(measured: Mapping[str, Any], models: Sequence[str]) -> Iterator[Problem]:
    """Yield profiles that no job has: their figures would be left out, and those of a data sheet taken instead."""
    for name in measured:
        if name not in models:
            has = f"they have {named([*dict.fromkeys(models)])}"
            yield Problem("--profile", f"no job has the model {name!r}", has, code="unknown-name")


def _read(read: Callable[[], Read], where: str, problems: list[Problem]) -> Read | None:
    """Return the value that is read; where it is wrong, add the problem and return None."""
    try:
        return read()
    except InvalidInputError as error:
        problems.extend(error.problems)
    except UsageError as error:
        problems.extend(error.problems_of(where))
    return None


def _table(arguments: argparse.Namespace) -> tuple[OwnJob, ...]:
    from jigsaw_opt.instances.sources import workload_from
    from jigsaw_opt.problem.workload import MOST_GPUS
    from jigsaw_opt.simulation.inputs.own_jobs import jobs_of
    from jigsaw_opt.simulation.inputs.workload_changes import with_types_of, without_too_wide
    from jigsaw_opt.simulation.inputs.workloads import why_too_wide

    cluster = _known_cluster(arguments.cluster or _CLUSTER)
    count = MOST_GPUS if cluster is None else cluster.gpu_count
    types = () if cluster is None else tuple(dict.fromkeys(server.gpu_type for server in cluster.servers))
    skipping = arguments.too_wide == "skip"

    def accept(job: TraceJob) -> Sequence[str]:
        wide = None if skipping else why_too_wide(job, job.gpus, count)
        return [reason for reason in (wide, _why_not_all(job, types)) if reason is not None]

    source = readable(arguments.jobs)
    found = workload_from(f"csv:{arguments.jobs}", arguments.columns, accept)
    workload = without_too_wide(found, lambda job: count, rigid=True)
    if cluster is not None:
        workload = with_types_of(workload, cluster)
    for line in workload.reading_told():
        note(f"{source}: {line}")
    return jobs_of(workload, arguments.model)


def _why_not_all(job: TraceJob, types: Sequence[str]) -> str | None:
    """Return that a job may not have all types of GPU of a cluster of several, which an instance cannot say."""
    from jigsaw_opt.problem.gpu_types import matching_types

    allowed = {name for asked in job.gpu_types or types for name in matching_types(asked, types)}
    others = [name for name in types if name not in allowed]
    if len(types) == 1 or not others:
        return None
    return (
        f"job {job.name!r} may not run on GPUs of type {', '.join(others)}, and an instance does not say which types"
        " a job may have: give it a --cluster of its own types"
    )


def _known_cluster(words: str) -> Cluster | None:
    """Return a cluster; None where its words are wrong, which is told later."""
    from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words

    try:
        return cluster_in_words(words)
    except (InvalidInputError, UsageError):
        return None


def _profile(word: str, known: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a measured model by its name; what it holds is checked with the instance."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.parsing import parsed

    name, _, file = word.partition("=")
    if not name or not file or name in known:
        raise malformed("--profile", f"a profile is NAME=FILE, each name once, not {word!r}")
    tree = parsed(read_text(file), readable(file), _require_object)
    return {name: tree}


def _link(file: str) -> tuple[int, int]:
    """Return bandwidth and latency, rounded to whole microseconds, of measured all-reduces."""
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.parsing import parsed

    found = parsed(read_text(file), readable(file), _require_link)["all_reduce"]
    return found["bandwidth"], round(found["latency_us"])


def _require_link(tree: Any, report: Report) -> None:
    found = tree.get("all_reduce") if isinstance(tree, dict) else None
    if not isinstance(found, dict):
        report.add(
            "$",
            "holds no measured all-reduces",
            "jigsaw profile --all-reduce N --json > FILE writes them",
            code="missing-field",
        )
        return
    bandwidth, latency_us = found.get("bandwidth"), found.get("latency_us")
    if not isinstance(bandwidth, int) or not 1 <= bandwidth < 2**53:
        report.add("$.all_reduce.bandwidth", f"must be an integer of at least 1; is {bandwidth!r}", code="out-of-range")
    if isinstance(latency_us, bool) or not isinstance(latency_us, int | float) or not 0 <= latency_us < 2**53:
        report.add("$.all_reduce.latency_us", f"must be a number of at least 0; is {latency_us!r}", code="out-of-range")


def _require_object(tree: Any, report: Report) -> None:
    if not isinstance(tree, dict):
        report.add("$", "a measured model is an object", code="wrong-type")
