"""What the zoo offers: families of networks, their arguments, and known networks by name. Needs no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from jigsaw_opt.planning.pipeline.stated import STATED_BY, flow_of
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.rules.report import Place, Report, describe, quoted
from jigsaw_opt.problem.task_graph import AsynchronousFamily

Value = int | str | tuple[int, ...]
Arguments = Mapping[str, Value]

FAMILIES: Mapping[str, Arguments] = MappingProxyType(
    {
        "mlp": {"inputs": 64, "hidden": (64, 64), "classes": 10, "data": "synthetic"},
        "vgg": {"image": 32, "channels": 3, "stages": (1, 1), "widths": (16, 32), "dense": (64,), "classes": 10},
        "resnet": {"image": 32, "channels": 3, "stages": (1, 1), "width": 8, "classes": 10},
        "bert": {"layers": 2, "width": 32, "heads": 2, "rows": 16, "positions": 64, "vocabulary": 128},
        "gpt": {
            "layers": 2,
            "width": 32,
            "heads": 2,
            "rows": 16,
            "positions": 64,
            "vocabulary": 256,
            "data": "synthetic",
        },
    }
)
"""Arguments of each family with their defaults, which make a tiny network."""

_GPT2 = {"rows": 1024, "positions": 1024, "vocabulary": 50257}
KNOWN: Mapping[str, tuple[str, Arguments]] = MappingProxyType(
    {
        **{family: (family, {}) for family in FAMILIES},
        "vgg16": (
            "vgg",
            {
                "image": 224,
                "stages": (2, 2, 3, 3, 3),
                "widths": (64, 128, 256, 512, 512),
                "dense": (4096, 4096),
                "classes": 1000,
            },
        ),
        "resnet50": ("resnet", {"image": 224, "stages": (3, 4, 6, 3), "width": 64, "classes": 1000}),
        "bert_large": (
            "bert",
            {"layers": 24, "width": 1024, "heads": 16, "rows": 128, "positions": 512, "vocabulary": 30522},
        ),
        "gpt2_small": ("gpt", {"layers": 12, "width": 768, "heads": 12, **_GPT2}),
        "gpt2_medium": ("gpt", {"layers": 24, "width": 1024, "heads": 16, **_GPT2}),
    }
)
"""Family and changed arguments of every name that a document may use."""

_GIVEN = ("rank", "world", "device")
"""Arguments that a run gives to a training of the user's own."""

_DATA = {"mlp": ("synthetic", "digits"), "gpt": ("synthetic", "text")}


def resolve(zoo: str, given: Mapping[str, Any], place: Place, report: Report) -> tuple[str, dict[str, Any]]:
    """Return the family of `zoo` and all its arguments.

    `given`: arguments of the document or the command line, which take precedence over the defaults.
    """
    if zoo not in KNOWN:
        report.add_misspelt((place, "zoo"), f"no network is called {quoted(zoo)}", zoo, KNOWN, code="unknown-name")
        return zoo, {}
    family, changes = KNOWN[zoo]
    defaults = {**FAMILIES[family], **changes}
    where: Place = (place, "arguments")
    before = len(report.problems)
    for name, value in given.items():
        if name not in defaults:
            report.add_misspelt(
                (where, name), f"{quoted(zoo)} has no such argument", name, defaults, code="unknown-field"
            )
        else:
            _check_type(value, defaults[name], (where, name), report)
    arguments = {**defaults, **given}
    if len(report.problems) == before:
        _check_sense(family, arguments, where, report)
    return family, arguments


def check_trust(name: str, trusted: Collection[str], place: Place, report: Report) -> None:
    """Report a ``module:function`` that may not be imported."""
    if name not in trusted:
        report.add(
            place, f"{quoted(name)} is code that nobody has trusted", f"--trust {name} imports it", code="not-allowed"
        )


def _check_type(value: object, default: Value, place: Place, report: Report) -> None:
    if isinstance(default, int):
        if type(value) is not int or value < 1:
            report.add(place, f"must be an integer of at least 1; is {describe(value)}", code="out-of-range")
    elif isinstance(default, tuple):
        items = value if isinstance(value, list | tuple) else ()
        if not items or not all(type(item) is int and item >= 1 for item in items):
            report.add(place, "must be a list of one or more integers of at least 1", code="out-of-range")
    elif not isinstance(value, str):
        report.add(place, f"must be a string; is {describe(value)}", code="wrong-type")


def _check_sense(family: str, arguments: Mapping[str, Any], place: Place, report: Report) -> None:
    """Check what the types alone do not say."""
    data, options = arguments.get("data"), _DATA.get(family, ())
    if data not in (None, *options):
        report.add_misspelt(
            (place, "data"), f"no data is called {quoted(str(data))}", str(data), options, code="unknown-value"
        )
    elif data == "digits" and (arguments["inputs"], arguments["classes"]) != (64, 10):
        report.add((place, "data"), 'the digits have "inputs" 64 and "classes" 10', code="contradiction")
    elif data == "text" and arguments["vocabulary"] < 256:
        report.add((place, "vocabulary"), "the text is read as bytes, so it must be at least 256", code="out-of-range")
    if family == "vgg":
        stages = len(arguments["stages"])
        if len(arguments["widths"]) != stages:
            report.add((place, "widths"), f'must have as many items as "stages", {stages}', code="wrong-count")
        if arguments["image"] < 2**stages:
            report.add((place, "image"), f"must be at least {2**stages}: each stage halves it", code="out-of-range")
    width, heads = arguments.get("width", 0), arguments.get("heads", 1)
    if width % heads:
        report.add((place, "heads"), f"must divide the width {width}; is {heads}", code="out-of-range")
    rows, positions = arguments.get("rows", 0), arguments.get("positions", 0)
    if rows > positions:
        report.add((place, "rows"), f"must be at most the positions {positions}; is {rows}", code="out-of-range")
    for name in ("rows", "vocabulary") if family == "bert" else ():
        if arguments[name] < 2:
            report.add((place, name), "must be at least 2 for pairs of sentences; is 1", code="out-of-range")


def stages_entry(
    instance: Instance, trusted: Collection[str], is_cut: bool = False, is_dry: bool = False
) -> Mapping[str, Any] | None:
    """Return how the stages of an instance's pipeline are built; None where it has data-parallel jobs alone.

    A job without an entry takes the function that is trusted, if one alone is that no model names. Models of
    data-parallel jobs must say how they are built.

    `is_cut`: whether a partition says where the model is cut, so that the job's entry does not. `is_dry`: whether
    nothing is built, so that nobody has to say how.
    """
    graphs, jobs = instance.task_graph_of, instance.task_graph_jobs
    report = Report()
    if not is_dry:
        _check_models(instance, trusted, report)
    if not jobs:
        report.raise_if_any()
        return None
    for number, job in zip(graphs, jobs, strict=True):
        place: Place = (("$", "jobs"), number)
        family, carried = job.shape.family, "data-parallel jobs, pipelines and bursts are carried out"
        if family is None:
            message = f"job {job.name!r} has a task graph that states no family; {carried}"
            report.add(place, message, STATED_BY, code="unsupported")
        elif isinstance(family, AsynchronousFamily) and flow_of(job.shape) is None:
            message = f"job {job.name!r} is an asynchronous pipeline; some stage has copies, which are not carried out"
            report.add(place, message, code="unsupported")
        elif isinstance(family, AsynchronousFamily) and len(instance.jobs) > 1:
            report.add(
                place, f"job {job.name!r} is an asynchronous pipeline; these are carried out alone", code="unsupported"
            )
    if len(jobs) > 1:
        names = ", ".join(repr(job.name) for job in jobs)
        message = f"has several pipelines or bursts, {names}; one is carried out, beside data-parallel jobs"
        report.add("$.jobs", message, code="ambiguous")
        report.raise_if_any()
    if is_dry:
        report.raise_if_any()
        return {}
    [job], [number] = jobs, graphs
    entry, place = job.executor, (("$", "jobs"), number)
    named = [model.executor or {} for model in instance.models.values()]
    left = {*trusted} - {entry.get("train", entry.get("zoo")) for entry in named}
    if entry is None and len(left) == 1:
        entry = {"train": left.pop(), "arguments": {}, "cuts": []}
    if entry is None:
        report.add(
            place,
            'has no "executor" entry, so it cannot be built',
            "--trust module:function names one",
            code="missing-field",
        )
    else:
        _check_own(entry, trusted, (place, "executor"), report)
        if is_cut and job.executor is not None:
            report.add(
                (place, "executor"), "says where the model is cut, and so does the partition", code="contradiction"
            )
    report.raise_if_any()
    return entry


def _check_models(instance: Instance, trusted: Collection[str], report: Report) -> None:
    """Report models of data-parallel jobs that do not say how they are built, or say so wrongly."""
    for name in sorted({job.model for job in instance.data_parallel_jobs}):
        place: Place = (("$", "models"), name)
        entry = instance.models[name].executor
        if entry is None:
            report.add(
                place, 'has no "executor" entry, so it cannot be built', "see docs/executor.md", code="missing-field"
            )
        elif "train" in entry:
            _check_own(entry, trusted, (place, "executor"), report)
        elif ":" in entry["zoo"]:
            check_trust(entry["zoo"], trusted, ((place, "executor"), "zoo"), report)
        else:
            resolve(entry["zoo"], entry["arguments"], (place, "executor"), report)


def _check_own(entry: Mapping[str, Any], trusted: Collection[str], place: Place, report: Report) -> None:
    """Check what the structure does not say of a training of the user's own."""
    check_trust(entry["train"], trusted, (place, "train"), report)
    if ":" not in entry["train"]:
        report.add((place, "train"), f"must be module:function; is {quoted(entry['train'])}", code="malformed")
    for name in sorted(entry["arguments"].keys() & set(_GIVEN)):
        report.add(
            ((place, "arguments"), name), f"{quoted(name)} is given by the run to every worker", code="not-allowed"
        )
