"""Instances, models and layer profiles from the files of other projects, by the name of their format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, overload

from jigsaw_opt.documents.file_bytes import read_file, read_text
from jigsaw_opt.documents.job_shops import read_jsplib
from jigsaw_opt.documents.readers import (
    read_deeppool,
    read_deeppool_layers,
    read_kineto,
    read_kineto_layers,
    read_layer_graph,
    read_pipedream,
)
from jigsaw_opt.documents.readers.chakra.reading import read_chakra
from jigsaw_opt.documents.readers.traces import READERS
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import Problem, Problems, UsageError, argument
from jigsaw_opt.instances.gpus import GPU_TYPES, GpuType, data_sheet, type_name
from jigsaw_opt.instances.measured import MeasuredSetting, instance_of, instance_of_task_graph
from jigsaw_opt.instances.profiles import read_estimated_layers, read_model
from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.layers import LayerGraph, chain_edges
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.text import Tell, named, nearest, say_nothing

Form = Literal["instance", "model", "layers"]
Document = Literal["pipedream", "deeppool", "kineto", "chakra", "huggingface", "jsplib"]
_SETTING = tuple(field.name for field in fields(MeasuredSetting))
_LARGEST = 2**53 - 1
Read = TypeVar("Read")


@overload
def read(  # type: ignore[overload-overlap]
    kind: Document, *files: str | Path, **option: Any
) -> Instance | Model | LayerGraph: ...
@overload
def read(kind: str, *files: str | Path, columns: str = "") -> Workload: ...
def read(kind: str, *files: str | Path, **option: Any) -> Workload | Instance | Model | LayerGraph:
    """Return what files say, of a kind of our own or of other projects.

    Parameters
    ----------
    kind
        A trace of a cluster: ``csv``, our own format, ``slurm``, ``kubernetes``, ``philly`` and others; or
        ``pipedream``, ``deeppool``, ``kineto``, ``chakra``, ``huggingface`` or ``jsplib``.
    *files
        One trace, of ``csv`` also the name of a bundled one; or one measured profile a job; of ``chakra``, the traces
        of one job; of ``jsplib``, one shop.
    **option
        Of ``csv``, ``columns``: what it calls its columns, as in ``gpus=num_gpu,submit_s=time``. Of no trace, those of
        ``jigsaw convert``, as ``gpu_type``, ``batch``, ``name``, and ``to``: ``instance``, ``model`` or ``layers``.

    Returns
    -------
    Workload or Instance or Model or LayerGraph
        Jobs of days, with what was left out of them, of a trace; else what ``to`` says.

    Raises
    ------
    InvalidInputError
        A file cannot be read, or breaks its format; with every problem and its place.
    UsageError
        There is no such kind, or an option does not go with it.
    """
    if kind in FORMATS:
        return convert(kind, [Path(file) for file in files], **option)
    if kind not in READERS:
        told = nearest(kind, (*READERS, *FORMATS))
        raise UsageError(f"no kind {kind!r} of files; {told}", code="unknown-value", path="kind")
    if len(files) != 1 or {*option} - {"columns"}:
        raise UsageError(f"{kind} takes one file, and columns alone", code="not-together", path="files")
    return workload_from(f"{kind}:{files[0]}", **option)


def convert(
    form: str, files: Sequence[Path], to: Form = "instance", *, name: str = "", tell: Tell | None = None, **option: Any
) -> Instance | Model | LayerGraph:
    """Return what files of other projects say, as an instance, a model or a layer profile.

    `form`: their format. `files`: one measured profile a job; of ``chakra``, the traces of one job; of ``jsplib``, one
    shop. `to`: what is made of them; a model or layers of one profile only. `name`: that of the instance; empty for the
    format, or the file of a shop. `tell`: receives sentences on what the files do not say; None for nobody. `option`:
    options as of ``jigsaw convert``: ``gpu_type``, on which times were measured; those of the format, as ``batch``,
    ``layers`` or ``tokens``; and, of an instance, the fields of `MeasuredSetting`.
    """
    say = tell or say_nothing
    if form not in FORMATS:
        raise UsageError(f"no format {form!r}; {nearest(form, FORMATS)}", code="unknown-value", path="form")
    _require_options(form, to, len(files), option)
    if "gpu_type" in option:
        option["gpu_type"] = type_name(option["gpu_type"])
    reader = FORMATS[form]
    own = {key: value for key, value in option.items() if key not in _SETTING}
    setting = {key: value for key, value in option.items() if key in _SETTING}
    if reader.instance is not None:
        return reader.instance(files, name, say, **option)
    if to == "layers":
        factor = own.pop("state_factor", None)
        with _reading(files[0], form) as data:
            graph = _called(reader.layers, data, files[0], say, gpu_type=option["gpu_type"], **own)
        _tell_unknown(graph, str(files[0]), say)
        return graph if factor is None else replace(graph, state_factor=factor)
    own.setdefault("segments", 6)
    models, problems = dict[str, Model](), Problems()
    for path in files:
        model = path.name.split(".")[0]
        if model in models:
            told = f"two profiles are called {model!r}; each file is one job and needs a name of its own"
            raise UsageError(told, code="duplicate-name", path="name")
        with problems.of(str(path)), _reading(path, form) as data:
            models[model] = _called(reader.model, data, path, say, gpu_type=option["gpu_type"], **own)
    problems.tell()
    return instance_of(name or form, models, MeasuredSetting(**setting)) if to == "instance" else models[model]


def _called(reader: Callable[..., Read] | None, data: bytes, path: Path, tell: Tell, **option: Any) -> Read:
    """Return what a reader makes of the bytes of a file."""
    assert reader is not None, "the format has it"
    more = {"source": str(path), "tell": tell}
    return reader(data, **option, **{key: more[key] for key in more if key in signature(reader).parameters})


@contextmanager
def _reading(path: Path, form: str) -> Iterator[bytes]:
    """Yield the bytes of a file, and say what it is where they are not read because they are something else."""
    data = read_text(path)
    with expecting(data, str(path), form):
        yield data


def _require_options(form: str, to: Form, files: int, option: Mapping[str, object]) -> None:
    """Refuse options that are missing, out of range, or do not go with the format or with what is made of it."""
    reader, wrong = FORMATS[form], list[Problem]()
    if reader.instance is not None and to != "instance":
        told = f"{form} becomes an instance; leave out {argument('to', to)}"
        wrong.append(Problem("to", told, code="not-together"))
    if files > 1 and (to != "instance" or form == "jsplib"):
        told = f"{form} takes one file" if form == "jsplib" else f"{argument('to', to)} takes one profile"
        wrong.append(Problem("files", told, code="wrong-count"))
    takes = _takes(reader, to)
    for name in option:
        if name not in takes:
            owners = [other for other in FORMATS if name in _takes(FORMATS[other], to)]
            of = f"is of {named(owners, len(owners))}, not of {form}" if owners else f"is not of {argument('to', to)}"
            wrong.append(Problem(name, f"{argument(name)} {of}", code="not-together"))
    for name, is_needed in takes.items():
        if is_needed and name not in option:
            wrong.append(Problem(name, f"{form} does not say it: give {argument(name)}", code="missing-option"))
    for name, value in option.items():
        least = 0 if name == "latency_us" else 1
        if isinstance(value, int) and not least <= value <= _LARGEST:
            told = f"{argument(name)} is from {least} to 2^53 - 1, not {value}"
            wrong.append(Problem(name, told, code="out-of-range"))
    if wrong:
        raise UsageError.of(wrong)


def _takes(reader: ProfileReader, to: Form) -> dict[str, bool]:
    """Return the options of a format, and whether each is needed."""
    function = reader.instance or (reader.layers if to == "layers" else reader.model)
    assert function is not None, "a format has both, or makes instances"
    others = ("data", "source", "tell", "files", "name")
    own = [each for each in signature(function).parameters.values() if each.name not in others]
    takes = {each.name: each.default is Parameter.empty for each in own if each.kind is not Parameter.VAR_KEYWORD}
    if to == "layers":
        return takes | {"state_factor": False}
    has_cluster = to == "instance" and (reader.instance is None or len(takes) < len(own))
    return dict.fromkeys(_SETTING, False) | takes if has_cluster else takes


def _tell_unknown(graph: LayerGraph, source: str, tell: Tell) -> None:
    """Say what the profile has not been told of its layers."""
    if any(layer.weight_us is None for layer in graph.layers):
        tell(f"{source}: it is not known how much of the backward passes goes into the gradients of weights")
    if unknown := [layer.name for layer in graph.layers[:-1] if layer.output_bytes is None]:
        tell(f"{source}: it is not known what is sent behind {named(unknown)}: bytes of activations count")
    if not graph.knows_input:
        tell(f"{source}: it is not known how many bytes of input the model reads")


def _pipedream_layers(data: bytes, gpu_type: str, source: str) -> LayerGraph:
    return replace(read_layer_graph(data, source=source), gpu_type=gpu_type)


def _deeppool_layers(data: bytes, gpu_type: str, source: str, *, batch: int) -> LayerGraph:
    layers = read_deeppool_layers(data, batch, source=source)
    return LayerGraph(layers, chain_edges(len(layers)), batch, gpu_type=gpu_type)


def _kineto_layers(
    data: bytes,
    gpu_type: str,
    source: str,
    tell: Tell,
    *,
    batch: int | None = None,
    layers: Sequence[str] = (),
    parameter_bytes: Mapping[str, int] | None = None,
    activation_bytes: Mapping[str, int] | None = None,
) -> LayerGraph:
    found = read_kineto_layers(
        data,
        layers=layers,
        parameter_bytes=parameter_bytes,
        activation_bytes=activation_bytes,
        of_a_pass=True,
        source=source,
        tell=tell,
    )
    return LayerGraph(found, chain_edges(len(found)), batch, gpu_type=gpu_type)


def _estimated_model(
    data: bytes,
    gpu_type: str,
    source: str,
    tell: Tell,
    *,
    batch: int,
    segments: int = 6,
    tokens: int | None = None,
    peak_flops: int | None = None,
    memory_bandwidth: int | None = None,
    efficiency: int | None = None,
) -> Model:
    gpu = _gpu(gpu_type, peak_flops, memory_bandwidth, efficiency)
    return read_model(data, {gpu_type: gpu}, batch, tokens=tokens, segments=segments, source=source, tell=tell)


def _estimated_layers(
    data: bytes,
    gpu_type: str,
    source: str,
    tell: Tell,
    *,
    batch: int,
    tokens: int | None = None,
    peak_flops: int | None = None,
    memory_bandwidth: int | None = None,
    efficiency: int | None = None,
) -> LayerGraph:
    gpu = _gpu(gpu_type, peak_flops, memory_bandwidth, efficiency)
    return read_estimated_layers(data, gpu_type, gpu, batch, tokens=tokens, source=source, tell=tell)


def _gpu(gpu_type: str, peak: int | None, bandwidth: int | None, efficiency: int | None) -> GpuType:
    """Return figures of the GPU: those given, and for others those of its data sheet."""
    gpu = data_sheet(gpu_type)
    if gpu is None and (peak is None or bandwidth is None):
        give = f"give {argument('peak_flops')}, {argument('memory_bandwidth')}"
        told = f"no data sheet of {gpu_type!r}, but of {', '.join(GPU_TYPES)}: {give}"
        raise UsageError(told, code="unknown-name", path="gpu_type")
    # The memory of a GPU and its fabric make no layer faster.
    gpu = gpu or GpuType(1, 1, 1, 1)
    given = {"peak_flops": peak, "memory_bandwidth": bandwidth, "efficiency": efficiency}
    return replace(gpu, **{name: value for name, value in given.items() if value is not None})


def _traced(files: Sequence[Path], name: str, tell: Tell, *, gpu_type: str, **setting: Any) -> Instance:
    """Return the instance of one job, whose ranks have the traces; it is carried out once unless more is asked for."""
    problems, traces = Problems(), dict[str, bytes]()
    for path in files:
        with problems.of(str(path)):
            traces[str(path)] = read_file(path)
    problems.tell()
    asked = MeasuredSetting(gpu_type, **{"iterations": 1, **setting})
    return instance_of_task_graph(name or "chakra", read_chakra(traces, gpu_type, asked.workers, tell), asked)


def _shop(files: Sequence[Path], name: str, tell: Tell) -> Instance:
    return read_jsplib(read_text(files[0]), str(files[0]), name or None, tell)


class ProfileReader(NamedTuple):
    """What reads a format: a model and layers of one profile, or an instance of all files.

    Keywords of these functions are the options of the format.
    """

    model: Callable[..., Model] | None = None
    layers: Callable[..., LayerGraph] | None = None
    instance: Callable[..., Instance] | None = None


FORMATS: Mapping[str, ProfileReader] = {
    "pipedream": ProfileReader(read_pipedream, _pipedream_layers),
    "deeppool": ProfileReader(read_deeppool, _deeppool_layers),
    "kineto": ProfileReader(read_kineto, _kineto_layers),
    "chakra": ProfileReader(instance=_traced),
    "huggingface": ProfileReader(_estimated_model, _estimated_layers),
    "jsplib": ProfileReader(instance=_shop),
}
"""Readers by name of a format."""
