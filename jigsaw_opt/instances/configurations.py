"""Transformers counted from their ``config.json``, as models on the Hugging Face hub have it; no code is run.

Decoders have their output layer, which a tied one shares with the table of the input; encoders have their pooler and no
head for a task. Attention is counted in full: no mask and no window saves anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.report import Report, describe, quoted
from jigsaw_opt.instances.architectures import Unit, transformer
from jigsaw_opt.instances.gpus import GpuType
from jigsaw_opt.instances.layers import Layer, attention, elementwise, embedding, layer_norm, linear, rms_norm
from jigsaw_opt.instances.profiles import estimate
from jigsaw_opt.problem.model import Model

__all__ = ["FAMILIES", "Configuration", "read_configuration", "read_model"]

_DTYPES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
_STATE_BYTES = 16
"""Of a parameter: itself, its gradient, and what Adam holds at 32 bits."""
_MOST = 2**31
_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Configuration:
    """A network as its configuration tells it.

    Parameters
    ----------
    units
        From input to output.
    parameter_bytes
        Bytes of one parameter.
    """

    units: tuple[Unit, ...]
    parameter_bytes: int

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return sum(unit.parameters for unit in self.units)


def read_configuration(data: bytes | str, tokens: int, source: str = "config.json") -> Configuration:
    """Read the configuration of a transformer.

    Parameters
    ----------
    data
        The text of the file.
    tokens
        Length of a sequence, at least 1.
    source
        What problems call the text.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    found: list[Configuration] = []

    def read(tree: Any, report: Report) -> None:
        fields = _Fields(tree, source, report)
        family = FAMILIES.get(fields.text("model_type"))
        if family is None:
            fields.add("model_type", f"is one of {', '.join(FAMILIES)}, not {describe(tree.get('model_type'))}")
        else:
            dtype = "dtype" if "torch_dtype" not in tree else "torch_dtype"
            name = fields.text(dtype, "float32")
            if name not in _DTYPES:
                fields.add(dtype, f"is one of {', '.join(_DTYPES)}, not {quoted(name)}")
            found.append(Configuration(family(fields, tokens), _DTYPES.get(name, 4)))

    parsed(data, source, read)
    return found[0]


def read_model(
    data: bytes | str,
    gpus: Mapping[str, GpuType],
    batch: int,
    *,
    tokens: int = 512,
    segments: int = 6,
    source: str = "config.json",
) -> Model:
    """The estimated model of a configuration, as `profile` estimates; 16 bytes a parameter are held, as Adam needs.

    Parameters
    ----------
    data, tokens, source
        As of `read_configuration`.
    gpus
        Figures of GPUs by the type that they are called.
    batch
        Sequences a worker and iteration, at least 1.
    segments
        Most segments, at least 1.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    read = read_configuration(data, tokens, source)
    parts = estimate(read.units, batch, gpus, min(segments, len(read.units)), read.parameter_bytes)
    return Model(parts, state_factor=_STATE_BYTES // read.parameter_bytes)


class _Fields:
    """The values of a configuration; what is wrong is noted and read as the least value."""

    def __init__(self, tree: Mapping[str, Any], source: str, report: Report) -> None:
        self._tree, self._source, self._report = tree, source, report

    def add(self, key: str, message: str) -> None:
        self._report.add(f"{self._source}: $.{key}", message)

    def text(self, key: str, default: str = "") -> str:
        value = self._tree.get(key)
        return default if value is None else str(value)

    def whole(self, key: str, other: str = "", default: int | None = None, most: int = _MOST) -> int:
        """A whole number of at least 1 under a key, or under another name of it."""
        key = other if other in self._tree and key not in self._tree else key
        value = self._tree.get(key)
        value = default if value is None else value
        if type(value) is int and 1 <= value <= most:
            return value
        self.add(key, f"a whole number from 1 to {most} is expected, not {describe(value)}")
        return 1

    def flag(self, key: str, default: bool) -> bool:
        value = self._tree.get(key, default)
        if not isinstance(value, bool):
            self.add(key, f"true or false is expected, not {describe(value)}")
        return value is True

    def layers(self, key: str = "num_hidden_layers", other: str = "") -> int:
        return self.whole(key, other, most=_MOST_LAYERS)

    def shared_out(self, key: str, whole: int, parts: int) -> int:
        """Part of a number; it is noted where there is a rest."""
        if whole % parts:
            self.add(key, f"{parts} does not divide {whole}")
        return max(1, whole // parts)

    def positions(self, key: str, other: str, tokens: int, reserved: int = 0) -> int:
        """Entries of a table of positions, of which the sequence has so many at most."""
        entries = self.whole(key, other)
        if tokens > entries - reserved:
            self.add(key, f"there are {entries - reserved} positions, and the sequence has {tokens} tokens")
        return entries


def _gpt2(fields: _Fields, rows: int) -> tuple[Unit, ...]:
    width, heads = fields.whole("n_embd", "hidden_size"), fields.whole("n_head", "num_attention_heads")
    fields.shared_out("n_head", width, heads)
    inner = fields.whole("n_inner", default=4 * width)
    positions = fields.positions("n_positions", "max_position_embeddings", rows)
    vocabulary = fields.whole("vocab_size")
    tables = (embedding(vocabulary, width, rows), embedding(positions, width, rows))
    body = _body(fields.layers("n_layer", "num_hidden_layers"), transformer(width, heads, rows, inner))
    head = _output(layer_norm(width, rows), vocabulary, width, rows, fields.flag("tie_word_embeddings", True))
    return (Unit("embeddings", tables), *body, head)


def _bert(fields: _Fields, rows: int, reserved: int = 0) -> tuple[Unit, ...]:
    width, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    fields.shared_out("num_attention_heads", width, heads)
    sizes = (
        fields.whole("vocab_size"),
        fields.positions("max_position_embeddings", "", rows, reserved),
        fields.whole("type_vocab_size", default=2),
    )
    tables = (*(embedding(size, width, rows) for size in sizes), layer_norm(width, rows))
    body = _body(fields.layers(), transformer(width, heads, rows, fields.whole("intermediate_size")))
    return (Unit("embeddings", tables), *body, Unit("pooler", (linear(width, width),)))


def _roberta(fields: _Fields, rows: int) -> tuple[Unit, ...]:
    """BERT whose first two positions mean padding."""
    return _bert(fields, rows, reserved=2)


def _gpt_neox(fields: _Fields, rows: int) -> tuple[Unit, ...]:
    width, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    fields.shared_out("num_attention_heads", width, heads)
    vocabulary = fields.whole("vocab_size")
    layer = (*transformer(width, heads, rows, fields.whole("intermediate_size")), elementwise(2 * width * rows))
    body = _body(fields.layers(), layer)
    head = _output(layer_norm(width, rows), vocabulary, width, rows, fields.flag("tie_word_embeddings", False))
    return (Unit("embeddings", (embedding(vocabulary, width, rows),)), *body, head)


def _llama(fields: _Fields, rows: int, biased: bool | None = None) -> tuple[Unit, ...]:
    """Llama and its kin; `biased` says whether queries, keys and values have a bias, None that the file does."""
    width, vocabulary = fields.whole("hidden_size"), fields.whole("vocab_size")
    attending = _grouped_attention(fields, width, rows, biased)
    inner, bias = fields.whole("intermediate_size"), fields.flag("mlp_bias", False)
    gated = (
        rms_norm(width, rows),
        linear(width, inner, rows, bias),
        linear(width, inner, rows, bias),
        elementwise(inner * rows),
        linear(inner, width, rows, bias),
        elementwise(width * rows),
    )
    body = _body(fields.layers(), (rms_norm(width, rows), *attending, *gated))
    head = _output(rms_norm(width, rows), vocabulary, width, rows, fields.flag("tie_word_embeddings", False))
    return (Unit("embeddings", (embedding(vocabulary, width, rows),)), *body, head)


def _grouped_attention(fields: _Fields, width: int, rows: int, biased: bool | None) -> tuple[Layer, ...]:
    """Attention of which several heads share a key and a value, with rotary positions."""
    heads = fields.whole("num_attention_heads")
    groups = fields.whole("num_key_value_heads", default=heads)
    fields.shared_out("num_key_value_heads", heads, groups)
    stated = fields.text("head_dim")
    each = fields.whole("head_dim") if stated else fields.shared_out("num_attention_heads", width, heads)
    bias = fields.flag("attention_bias", False) if biased is None else biased
    return (
        linear(width, heads * each, rows, bias),
        linear(width, 2 * groups * each, rows, bias),
        elementwise((heads + groups) * each * rows),
        attention(heads * each, heads, rows),
        linear(heads * each, width, rows, bias and biased is None),
        elementwise(width * rows),
    )


def _mistral(fields: _Fields, rows: int) -> tuple[Unit, ...]:
    return _llama(fields, rows, biased=False)


def _qwen2(fields: _Fields, rows: int) -> tuple[Unit, ...]:
    """Queries, keys and values have a bias, the output of attention has none."""
    return _llama(fields, rows, biased=True)


def _body(count: int, layers: tuple[Layer, ...]) -> tuple[Unit, ...]:
    return tuple(Unit(f"layer{index}", layers) for index in range(count))


def _output(norm: Layer, vocabulary: int, width: int, rows: int, tied: bool) -> Unit:
    return Unit("output", (norm, linear(width, vocabulary, rows, bias=False, tied=tied)))


FAMILIES: Mapping[str, Callable[[_Fields, int], tuple[Unit, ...]]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "roberta": _roberta,
}
"""By ``model_type``: fields and length of a sequence to units from input to output."""
