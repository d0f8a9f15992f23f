"""The part of a configuration of TorchTitan that has a pipeline's stages and names its schedule."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.pipeline.model_parts import ModelParts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH
from jigsaw_opt.text import json_text

__all__ = ["KNOWN_TORCHTITAN", "torchtitan_configuration", "torchtitan_names"]

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
