"""The modules of each stage of a pipeline, and how Megatron-LM and TorchTitan state them.

In a layout of Megatron-LM, one string, ``|`` parts stages: ``E`` is the embedding, ``t`` a transformer layer, ``m`` a
head that predicts several tokens, ``L`` the loss, and ``x*3`` stands for ``xxx``. Stage ``s`` of ``p`` ranks is on rank
``s mod p``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

from jigsaw_opt.documents import read_layers
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.partition.result import Partition, decode_partition
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.problem.task_graph import TaskGraph
from jigsaw_opt.text import json_text, named

ModelParts = tuple[tuple[str, ...], ...]
"""By stage, names of its modules in the order of the forward pass."""


def model_parts(
    partition: Partition, shape: TaskGraph, stages: int, layers: LayerGraph | None = None, source: str = "$"
) -> ModelParts:
    """Return the modules of each stage.

    `layers`: the layer profile that was cut, which may say of what modules a layer is made; None where a layer's name
    is the path of its module.
    """
    report, lengths = Report(), {block.name: block.duration_us.values() for block in shape.blocks}
    modules = {} if layers is None else {layer.name: layer.modules for layer in layers.layers}
    if len(partition.stages) != stages:
        report.add(
            f"{source}: $.stages",
            f"there are {len(partition.stages)}, and the pipeline has {stages} stages",
            code="mismatch",
        )
    for number, stage in enumerate(partition.stages):
        place = (f"{source}: $.stages", number)
        planned = lengths.get(f"F0.{number}")
        if planned is not None and max(1, stage.forward_us) not in planned:
            told = ", ".join(map(str, sorted(planned)))
            report.add(
                (place, "forward_us"), f"is {stage.forward_us}, and in the pipeline it takes {told} us", code="mismatch"
            )
        for at, name in enumerate(stage.nodes):
            if layers is not None and name not in modules:
                report.add(
                    ((place, "nodes"), at), f"the layer profile has no layer {quoted(name)}", code="unknown-name"
                )
    report.raise_if_any()
    return tuple(
        tuple(path for name in each.nodes for path in modules.get(name) or (name,)) for each in partition.stages
    )


def stated_parts(
    instance: Instance,
    job: int,
    stages: int,
    partition: Partition | Path,
    layers: LayerGraph | Path | None = None,
) -> tuple[Partition, ModelParts]:
    """Return the partition that a pipeline was made of, and the modules of each stage; raise as `model_parts`.

    `partition, layers`: documents, or their files.
    """
    source = "partition"
    if isinstance(partition, Path):
        source = str(partition)
        partition = decode_partition(read_text(source), source)
    if isinstance(layers, Path):
        layers = read_layers(read_text(layers), str(layers))
    return partition, model_parts(partition, instance.task_graph_of[job], stages, layers, source)


MEGATRON_KINDS = "EtmL-"
"""Kinds of modules; ``-`` is what Megatron places itself, as the last normalisation."""
MEGATRON_RECOMPUTES = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
"""What has Megatron keep the input of each layer alone, in all stages."""
_USUAL = (
    (re.compile(r"(.*\.)?(embeddings?|tok_embeddings|embed_tokens|word_embeddings|wte)"), "E"),
    (re.compile(r"(.*\.)?((layers?|blocks?|h)\.?[0-9]+)"), "t"),
    (re.compile(r"(.*\.)?(norm|final_norm|ln_f|final_layernorm)"), "-"),
    (re.compile(r"(.*\.)?(output|output_layer|lm_head|head|loss)"), "L"),
)
"""Usual names of modules by kind, in the models that Megatron, Hugging Face and torchtitan have."""
_LEAST_REPEATED = 3
"""Modules of a kind in a row from which ``t*3`` is shorter than ``ttt``."""


def megatron_layout(parts: ModelParts, layout: PipelineLayout, kinds: Sequence[tuple[str, str]] = ()) -> str:
    """Return the layout.

    `kinds`: patterns as of a shell for names of modules, each with its kind; the first that fits counts. Others are
    known by usual names, as ``tok_embeddings``, ``layers.0``, ``layer0``, ``norm`` or ``output``.
    """
    wrong = []
    unknown = [name for part in parts for name in part if not _kind(name, kinds)]
    if unknown:
        wrong.append(f"it is not known what {named(unknown)} are; say so as in --layout-of 'blocks.*=t'")
    strange = sorted({kind for _, kind in kinds if kind not in MEGATRON_KINDS or len(kind) != 1})
    if strange:
        wrong.append(f"kinds of modules are {', '.join(MEGATRON_KINDS)}, not {', '.join(map(quoted, strange))}")
    if layout.gpu_of != tuple(range(layout.gpus)) * (layout.stages // layout.gpus):
        wrong.append(
            "Megatron places stages in turn on all ranks; these are there and back, or elsewhere "
            "(jigsaw pipeline --placement loop keeps them in turn)"
        )
    stages = ["".join(_kind(name, kinds) for name in part).replace("-", "") for part in parts]
    if not wrong:
        wrong = _refused(stages, layout.gpus)
    if wrong:
        raise UsageError(*wrong, code="unsupported")
    return "|".join(map(_shortened, stages))


def _kind(name: str, kinds: Sequence[tuple[str, str]]) -> str:
    """Return the kind of a module; empty where it is not known."""
    given = next((kind for pattern, kind in kinds if fnmatchcase(name, pattern)), None)
    return next((kind for usual, kind in _USUAL if usual.fullmatch(name)), "") if given is None else given


def _refused(stages: Sequence[str], ranks: int) -> list[str]:
    """Return what Megatron refuses of stages in its own words."""
    wrong, whole = [], "".join(stages)
    if not re.fullmatch("Et*m*L", whole):
        wrong.append(f"Megatron has one E, all t, all m and one L in this order, not {quoted(_shortened(whole))}")
    holding = [number for number, stage in enumerate(stages) if "m" in stage]
    if len(holding) > 1:
        wrong.append("all heads of several tokens (m) are in one stage")
    # Stages are placed in turn, so that the last stages of all ranks are the last of all.
    elif holding and holding[0] < len(stages) - ranks:
        wrong.append("heads of several tokens (m) are in the last stage of their rank")
    return wrong


def _shortened(stage: str) -> str:
    """Return a stage with repetitions."""
    runs = [(kind, len(list(same))) for kind, same in groupby(stage)]
    return "".join(kind * count if count < _LEAST_REPEATED else f"{kind}*{count}" for kind, count in runs)


KNOWN_TORCHTITAN = "0.2"
"""Version that reads the snippet as it stands; later ones take the values in Python, and some by other names."""
_LOOP, _TURNING = "PipelineScheduleMulti", "ZBVZeroBubble"
"""What places stages in turn, and there and back; with a file of schedules, that is all TorchTitan takes it for."""
_COUNTED = re.compile(r"embeddings|layer(?P<number>[0-9]+)|output")
"""Layers of a transformer as `jigsaw convert huggingface` calls them."""


def torchtitan_names(parts: ModelParts) -> ModelParts:
    """Return the modules as TorchTitan calls them, where all are layers that a ``config.json`` was counted as."""
    matches = [[_COUNTED.fullmatch(name) for name in part] for part in parts]
    if not all(match for part in matches for match in part):
        return parts
    return tuple(tuple(path for match in part if match for path in _paths(match)) for part in matches)


def _paths(match: re.Match[str]) -> tuple[str, ...]:
    if match["number"] is not None:
        return (f"layers.{match['number']}",)
    return ("tok_embeddings",) if match[0] == "embeddings" else ("norm", "output")


def torchtitan_configuration(
    parts: ModelParts, layout: PipelineLayout, csv: str, batch: int | None, recomputed: Sequence[int] = ()
) -> str:
    """Return the configuration, in TOML; a comment has the values that later versions call by another name.

    `batch`: samples of a step on a rank; None for one each micro-batch. `recomputed`: stages that compute activations
    again. TorchTitan has one mode for all of them, which recomputes some activations where nothing is said.
    """
    gpus = layout.gpus
    samples, rest = divmod(layout.micro_batches if batch is None else batch, layout.micro_batches)
    if rest or samples < 1:
        raise UsageError(
            f"{batch} samples of a step do not divide into {layout.micro_batches} micro-batches",
            code="mismatch",
            path="batch",
        )
    there = tuple(range(gpus))
    styles = {there + there[::-1]: _TURNING, there * (layout.stages // gpus): _LOOP}
    if layout.gpu_of not in styles:
        raise UsageError(
            "TorchTitan places stages in turn on all ranks, or there and back once; these are elsewhere",
            code="unsupported",
        )
    values = {
        "pipeline_parallel_degree": gpus,
        "pipeline_parallel_schedule": styles[layout.gpu_of],
        "pipeline_parallel_schedule_csv": csv,
        "pipeline_parallel_microbatch_size": samples,
    }
    mode = "full" if recomputed else "none"
    which = f"  # the plan recomputes in parts {', '.join(map(str, recomputed))}" if recomputed else ""
    rows = "".join(f"    {json_text(part)},\n" for part in parts)
    return (
        f"# {layout.stages} stages on {gpus} ranks, {layout.micro_batches} micro-batches; "
        f"schedule for PyTorch {KNOWN_TORCH}\n"
        f"# TorchTitan {KNOWN_TORCHTITAN} reads this. Later: ParallelismConfig(num_pp_microbatches="
        f"{layout.micro_batches}) in place of pipeline_parallel_microbatch_size,\n"
        f"# and TrainingConfig(num_tokens_per_microbatch_per_dp_rank={samples} * tokens of a sample) in place of "
        "local_batch_size\n"
        f"[training]\nlocal_batch_size = {layout.micro_batches * samples}\n\n[parallelism]\n"
        + "".join(f"{key} = {json_text(value)}\n" for key, value in values.items())
        + f"module_fqns_per_model_part = [\n{rows}]\n"
        + f'\n[activation_checkpoint]\nmode = "{mode}"{which}\n'
    )
