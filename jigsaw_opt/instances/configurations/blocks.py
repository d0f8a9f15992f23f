"""Build units of layers from the description of a type and the values of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jigsaw_opt.instances.configurations.describing import Dense, Head, LookupTable, ModelType, Patches, Sound, Stack
from jigsaw_opt.instances.configurations.fields import Fields
from jigsaw_opt.instances.layers import Layer, Unit, attention, elementwise, embedding, layer_norm, linear

USUAL_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The values of a stack.

    `rows, before`: tokens of this stack, and of the stack before it. `features`: features of a token when it enters and
    leaves.
    """

    rows: int
    before: int
    layers: int
    width: int
    features: int
    heads: int
    groups: int
    head_size: int
    inner: int


def units_of(model_type: ModelType, end: str, fields: Fields, tokens: int | None) -> tuple[Unit, ...]:
    """Return the units of a network from input to output, an encoder's before its decoder's.

    `tokens`: length of a sequence; None means 512, or as many as there are positions.
    """
    stacks = model_type.stacks[:1] if end in model_type.encoders else model_type.stacks
    units: list[Unit] = []
    last: tuple[Layer, ...] = ()
    sizes: _Sizes | None = None
    for number, stack in enumerate(stacks):
        if last:
            units.append(Unit("encoder.norm", last))
        sizes = _sizes(stack, fields, tokens, sizes)
        prefix = "" if len(stacks) == 1 else ("encoder.", "decoder.")[number]
        units.append(Unit(f"{prefix}embeddings", tuple(_entry(stack, sizes, fields))))
        units.extend(Unit(f"{prefix}layer{index}", layers) for index, layers in _body(stack, sizes, fields))
        last = tuple(_exit(stack, sizes, fields))
    assert sizes is not None
    head = model_type.heads[end]
    tied = model_type.always_tied or (any(dense.tied for dense in head) and fields.flag("tie_word_embeddings"))
    last = (*last, *_head(head, sizes, tied, fields))
    name = "pooler" if head and all(dense.once and dense.outputs != "labels" for dense in head) else "output"
    return (*units, Unit(name, last)) if last else tuple(units)


def frozen_parameters(model_type: ModelType, fields: Fields) -> int:
    """Return the number of parameters that are not trained: fixed places of a sound."""
    return sum(
        fields.whole(stack.entry.positions) * fields.whole(stack.width)
        for stack in model_type.stacks
        if isinstance(stack.entry, Sound)
    )


def _sizes(stack: Stack, fields: Fields, tokens: int | None, before: _Sizes | None) -> _Sizes:
    width, heads = fields.whole(stack.width), fields.whole(stack.heads)
    groups = fields.whole(stack.groups, heads) if stack.groups else heads
    fields.shared_out(stack.groups, heads, groups)  # where there are no groups, heads divide themselves
    stated = stack.head_size and fields.value(stack.head_size) is not None
    head_size = fields.whole(stack.head_size) if stated else fields.shared_out(stack.heads, width, heads)
    features = width
    if isinstance(stack.entry, tuple) and stack.entry[0].width:
        features = fields.whole(stack.entry[0].width, width)
    return _Sizes(
        rows=_rows(stack, fields, tokens),
        before=before.rows if before else 0,
        layers=fields.layers(stack.layers, before.layers if before else None),
        width=width,
        features=features,
        heads=heads,
        groups=groups,
        head_size=head_size,
        inner=fields.whole(stack.inner, 4 * width),
    )


def _rows(stack: Stack, fields: Fields, tokens: int | None) -> int:
    """Return the tokens of a stack; of pictures and sounds they follow from the configuration."""
    if isinstance(stack.entry, Sound):
        return fields.whole(stack.entry.positions)
    if isinstance(stack.entry, Patches):
        return 1 + _patches(fields)
    rows = USUAL_TOKENS if tokens is None else tokens
    for table in stack.entry:
        if table.positions:
            places = fields.whole(table.entries) - table.reserved
            rows = max(1, min(rows, places)) if tokens is None else rows
            if rows > places:
                fields.add(
                    table.entries,
                    f"there are {places} positions, and the sequence has {rows} tokens",
                    code="contradiction",
                )
    return rows


def _patches(fields: Fields) -> int:
    (height, width), (high, wide) = fields.sides("image_size"), fields.sides("patch_size")
    if height < high or width < wide:
        fields.add("patch_size", "a patch is larger than the picture", code="contradiction")
    return max(1, height // high) * max(1, width // wide)


def _entry(stack: Stack, sizes: _Sizes, fields: Fields) -> Iterator[Layer]:
    rows, width = sizes.rows, sizes.width
    if isinstance(stack.entry, Patches):
        high, wide = fields.sides("patch_size")
        yield linear(fields.whole("num_channels") * high * wide, width, rows - 1)
        yield embedding(1, width, 1)
        yield embedding(rows, width, rows)
    elif isinstance(stack.entry, Sound):
        yield linear(3 * fields.whole(stack.entry.channels), width, 2 * rows)
        yield elementwise(2 * rows * width)
        yield linear(3 * width, width, rows)
        yield elementwise(rows * width)
        yield embedding(rows, width, rows)
    else:
        yield from (_table(table, sizes, fields) for table in stack.entry)
        if sizes.features != width:
            yield linear(sizes.features, width, rows, bias=False)
    for _ in range(stack.entry_norm):
        yield _norm(stack, sizes, fields)


def _table(table: LookupTable, sizes: _Sizes, fields: Fields) -> Layer:
    entries = 0 if table.tied else fields.whole(table.entries) + table.extra
    return embedding(entries, sizes.features if table.width else sizes.width, sizes.rows)


def _exit(stack: Stack, sizes: _Sizes, fields: Fields) -> Iterator[Layer]:
    if fields.flag(stack.final_norm) and not fields.flag(stack.no_final_norm):
        yield _norm(stack, sizes, fields)
    if sizes.features != sizes.width:
        yield linear(sizes.width, sizes.features, sizes.rows, bias=False)


def _body(stack: Stack, sizes: _Sizes, fields: Fields) -> Iterator[tuple[int, tuple[Layer, ...]]]:
    """Yield the layers of each layer of a stack, by its number."""
    attending = tuple(_attention(stack, sizes, fields))
    crossing = tuple(_attention(stack, sizes, fields, sizes.before)) if stack.crossed else ()
    dense = tuple(_dense(stack, sizes, sizes.inner, fields))
    first = (embedding(fields.whole(stack.buckets), sizes.heads, sizes.rows**2),) if stack.buckets else ()
    sparse = tuple(_experts(stack, sizes, fields)) if stack.experts else dense
    every = fields.whole(stack.experts.every) if stack.experts and stack.experts.every else 1
    plain = fields.indices(stack.experts.plain) if stack.experts and stack.experts.plain else frozenset()
    for index in range(sizes.layers):
        block = dense if index in plain or (index + 1) % every else sparse
        yield index, (*(first if index == 0 else ()), *attending, *crossing, *block)


def _norm(stack: Stack, sizes: _Sizes, fields: Fields) -> Layer:
    norm = stack.norm(sizes.width, sizes.rows)
    return norm if fields.flag(stack.affine) else replace(norm, parameters=0)


def _attention(stack: Stack, sizes: _Sizes, fields: Fields, others: int | None = None) -> Iterator[Layer]:
    """Yield attention of the tokens on themselves, or on `others` that the stack before has given."""
    rows, width, size = sizes.rows, sizes.width, sizes.head_size
    queries, keys = sizes.heads * size, sizes.groups * size
    bias, key_bias = fields.flag(stack.input_bias), stack.key_bias and fields.flag(stack.input_bias)
    yield _norm(stack, sizes, fields)
    # One layer for all three where they are as wide, as most programs have it.
    joint = others is None and not stack.groups
    beside = _biased(linear(width, 2 * keys, others or rows, bias=False), bias * keys + key_bias * keys)
    if joint:
        yield _biased(linear(width, 3 * queries, rows, bias=False), 2 * bias * queries + key_bias * queries)
    else:
        yield linear(width, queries, rows, bias)
        yield beside
    if stack.head_norms:
        yield stack.norm(size, sizes.heads * rows)
        yield stack.norm(size, sizes.groups * rows)
    if stack.rotary:
        yield elementwise((queries + keys) * rows)
    yield attention(queries, sizes.heads, rows, others)
    yield linear(queries, width, rows, fields.flag(stack.output_bias))
    for _ in range(stack.norms - 1):
        yield _norm(stack, sizes, fields)
    yield elementwise(width * rows)


def _biased(layer: Layer, bias: int) -> Layer:
    return replace(layer, parameters=layer.parameters + bias)


def _dense(stack: Stack, sizes: _Sizes, inner: int, fields: Fields) -> Iterator[Layer]:
    """Yield the dense block with its norms and the sum behind it."""
    yield _norm(stack, sizes, fields)
    yield from _between(stack, sizes, inner, sizes.rows, fields)
    for _ in range(stack.norms - 1):
        yield _norm(stack, sizes, fields)
    yield elementwise(sizes.width * sizes.rows)


def _between(stack: Stack, sizes: _Sizes, inner: int, rows: int, fields: Fields) -> Iterator[Layer]:
    bias = fields.flag(stack.dense_bias)
    for _ in range(1 + fields.gated(stack.gated)):
        yield linear(sizes.width, inner, rows, bias)
    yield elementwise(inner * rows)
    yield linear(inner, sizes.width, rows, bias)


def _experts(stack: Stack, sizes: _Sizes, fields: Fields) -> Iterator[Layer]:
    """Yield a block of experts: it has the parameters of all, and each token computes with the active ones."""
    assert stack.experts is not None
    count, active = fields.whole(stack.experts.count), fields.whole(stack.experts.active)
    if active > count:
        fields.add(stack.experts.active, f"a token takes {active} of {count} experts", code="contradiction")
    rows = sizes.rows * active
    yield _norm(stack, sizes, fields)
    yield linear(sizes.width, count, sizes.rows, bias=False)
    yield elementwise(count * sizes.rows)
    for layer in _between(stack, sizes, fields.whole(stack.experts.inner), rows, fields):
        yield replace(layer, parameters=count * layer.parameters)
    if stack.experts.shared:
        yield linear(sizes.width, 1, sizes.rows, bias=False)
        yield from _between(stack, sizes, fields.whole(stack.experts.shared), sizes.rows, fields)
    yield elementwise(sizes.width * rows)
    yield elementwise(sizes.width * sizes.rows)


def _head(head: Head, sizes: _Sizes, tied: bool, fields: Fields) -> Iterator[Layer]:
    for dense in head:
        outputs, rows = _outputs(dense, sizes, fields), 1 if dense.once else sizes.rows
        if outputs:
            layer = linear(sizes.features, outputs, rows, dense.bias, tied and dense.tied)
            yield _biased(layer, outputs if dense.second_bias and not tied else 0)
        if dense.normed:
            yield elementwise(outputs * rows)
            yield layer_norm(outputs, rows)


def _outputs(dense: Dense, sizes: _Sizes, fields: Fields) -> int:
    if isinstance(dense.outputs, int):
        return dense.outputs
    return fields.labels() if dense.outputs == "labels" else fields.whole(dense.outputs, sizes.width)
