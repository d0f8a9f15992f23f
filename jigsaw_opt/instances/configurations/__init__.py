"""Transformers counted from their ``config.json``, as models on the Hugging Face hub have it; no code is run.

What is counted is the class that ``architectures`` names, as ``transformers`` 5.24.0 builds it. Attention is counted in
full: no mask and no window saves anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.instances.configurations.blocks import frozen_parameters, units_of
from jigsaw_opt.instances.configurations.describing import ModelType
from jigsaw_opt.instances.configurations.fields import Fields, refuse_others, unread
from jigsaw_opt.instances.configurations.model_types import MODEL_TYPES
from jigsaw_opt.instances.layers import Unit
from jigsaw_opt.problem.rules.report import Report, describe, quoted

__all__ = ["Configuration", "defaults", "read_configuration"]

_DTYPES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network as its configuration tells it.

    `name`: class that is counted, as ``transformers`` calls it. `frozen`: number of parameters that are not trained.
    `notes`: what a reader has to know about the count.
    """

    name: str
    units: tuple[Unit, ...]
    parameter_bytes: int
    frozen: int = 0
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Number of parameters, shared ones once and those that are not trained with them."""
        return sum(unit.parameters for unit in self.units)


@cache
def defaults() -> Mapping[str, Mapping[str, int | str | None]]:
    """Return, by ``model_type``, what keys mean that a configuration leaves out: values of ``transformers`` 5.24.0.

    None is for keys whose value then follows from others: heads of keys and values are as many as heads, and so on.
    """
    found: dict[str, dict[str, int | str | None]]
    found = json.loads(files(__package__).joinpath("defaults.json").read_text(encoding="utf-8"))
    return found


def read_configuration(data: bytes | str, tokens: int | None = None, source: str = "config.json") -> Configuration:
    """Read the configuration of a transformer.

    `tokens`: length of a sequence, at least 1; None means 512, or as many as there are positions. Pictures and sounds
    have their own.
    """
    found: list[Configuration] = []

    def read(tree: Any, report: Report) -> None:
        kind = tree.get("model_type")
        model_type = MODEL_TYPES.get(kind) if isinstance(kind, str) else None
        if model_type is None:
            report.add(
                f"{source}: $.model_type",
                f"is one of {', '.join(MODEL_TYPES)}, not {describe(kind)}",
                code="unknown-value",
            )
        else:
            fields = Fields(tree, defaults()[kind], model_type.aliases, source, report)
            found.append(_read(fields, model_type, tokens))

    parsed(data, source, read)
    return found[0]


def _read(fields: Fields, model_type: ModelType, tokens: int | None) -> Configuration:
    # Where both names of the type of numbers are there, the newer one counts, as in `transformers`.
    dtype = "torch_dtype" if fields.value("dtype") is None and fields.value("torch_dtype") is not None else "dtype"
    name = fields.text(dtype) or "float32"
    if name not in _DTYPES:
        fields.add(dtype, f"is one of {', '.join(_DTYPES)}, not {quoted(name)}", code="unknown-value")
    refuse_others(fields)
    end = _end(model_type, fields)
    units = units_of(model_type, end, fields, tokens)
    notes = tuple(_notes(model_type, end, fields, tokens))
    frozen = frozen_parameters(model_type, fields)
    return Configuration(model_type.classes + end, units, _DTYPES.get(name, 4), frozen, notes)


def _end(model_type: ModelType, fields: Fields) -> str:
    """Return the end of the name of the class that is counted."""
    names = fields.value("architectures")
    if names is None or names == []:
        return model_type.usual
    known = {model_type.classes + end: end for end in model_type.heads}
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) and names[0] in known:
        return known[names[0]]
    shown = names[0] if isinstance(names, list) and len(names) == 1 else names
    fields.add(
        "architectures", f"a list of one of {', '.join(known)} is expected, not {describe(shown)}", code="unknown-value"
    )
    return model_type.usual


def _notes(model_type: ModelType, end: str, fields: Fields, tokens: int | None) -> Iterator[str]:
    others = unread(fields)
    if others:
        yield f"not read, though it may change the network: {', '.join(map(quoted, others))}"
    places = fields.value("max_position_embeddings")
    if tokens is not None and type(places) is int and tokens > places:
        yield f"sequences have {tokens} tokens, more than max_position_embeddings, which are {places}"
    tied = model_type.always_tied and any(dense.tied for dense in model_type.heads[end])
    if tied and fields.value("tie_word_embeddings") is False:
        more = fields.whole("vocab_size") * fields.whole(model_type.stacks[-1].width)
        yield (
            "the output layer shares the table of words, as the class is built though tie_word_embeddings is false; "
            f"a checkpoint with an output layer of its own has {more} parameters more"
        )
