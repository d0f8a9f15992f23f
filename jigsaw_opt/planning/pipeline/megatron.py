"""A pipeline's stages as Megatron-LM's ``--pipeline-model-parallel-layout`` states them.

One string, stages parted by ``|``: ``E`` is the embedding, ``t`` a transformer layer, ``m`` a head that predicts
several tokens, ``L`` the loss, and ``x*3`` stands for ``xxx``. Stage ``s`` of ``p`` ranks is on rank ``s mod p``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.pipeline.model_parts import ModelParts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.problem.rules.report import quoted
from jigsaw_opt.text import named

__all__ = ["MEGATRON_KINDS", "MEGATRON_RECOMPUTES", "megatron_layout"]

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
