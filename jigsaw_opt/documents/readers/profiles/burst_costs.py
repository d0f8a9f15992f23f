"""Costs of the layers of a model by number of GPUs, worked out with DeepPool's cost functions.

A JSON document: `gpus`, `global_batch`, and `layers` in the order of the chain. Each has `single_gpu_us` and `configs`
(`gpus`, `gpu_us`, `fwd_us`, `bwd_us`, `sync_us`), and each but the first `xfer_us`: a row for each config of the layer
before, a column for each of its own. All times are microseconds of one iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.structure import compiled

_TIME = {"type": "number", "minimum": 0, "maximum": 2**53 - 1}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
_LIST = {"type": "array"}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object, some of whose keys are required."""
    return {"type": "object", "required": required.split(), "properties": properties}


_TIMES = ("gpu_us", "fwd_us", "bwd_us", "sync_us")
_CONFIG = _object("gpus gpu_us fwd_us bwd_us sync_us", gpus=_COUNT, **dict.fromkeys(_TIMES, _TIME))
_LAYER = _object(
    "id name single_gpu_us configs",
    id=_COUNT | {"minimum": 0},
    name={"type": "string"},
    single_gpu_us=_TIME,
    configs=_LIST | {"minItems": 1, "items": _CONFIG},
    xfer_us=_LIST | {"items": _LIST | {"items": _TIME}},
)
_LAYERS = _LIST | {"minItems": 1, "items": _LAYER}
_SCHEMA = _object("gpus layers", model={"type": "string"}, gpus=_COUNT, global_batch=_COUNT, layers=_LAYERS)


@dataclass(frozen=True, slots=True)
class LayerOption:
    """A layer on so many GPUs; times in microseconds.

    `gpu_us`: forward and backward pass together, as measured. `forward_us, backward_us`: each of them, as measured;
    their sum may differ a little from `gpu_us`. `sync_us`: synchronising the gradients of its weights.
    """

    gpus: int
    gpu_us: float
    forward_us: float
    backward_us: float
    sync_us: float


@dataclass(frozen=True, slots=True)
class BurstLayer:
    """A layer and what it may run on.

    `single_gpu_us`: microseconds of its passes and its synchronisation on one GPU. `options`: what it may run on, each
    another number of GPUs. `transfer_us`: by option of the layer before and own one, microseconds of moving activations
    and their gradients; empty for the first layer.
    """

    name: str
    single_gpu_us: float
    options: tuple[LayerOption, ...]
    transfer_us: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class BurstCosts:
    """A chain of layers on at most so many GPUs, at a fixed global batch."""

    gpus: int
    layers: tuple[BurstLayer, ...]

    @property
    def single_gpu_us(self) -> float:
        """Microseconds of an iteration on one GPU."""
        return sum(layer.single_gpu_us for layer in self.layers)

    def limited(self, gpus: int) -> BurstCosts:
        """Return the same chain with only the options of at most so many GPUs."""
        kept = [[at for at, option in enumerate(layer.options) if option.gpus <= gpus] for layer in self.layers]
        layers = [
            BurstLayer(
                layer.name,
                layer.single_gpu_us,
                tuple(layer.options[at] for at in own),
                tuple(tuple(layer.transfer_us[one][at] for at in own) for one in before) if layer.transfer_us else (),
            )
            for layer, before, own in zip(self.layers, [[], *kept], kept, strict=False)
        ]
        return BurstCosts(min(gpus, self.gpus), tuple(layers))


def read_burst_costs(data: bytes | str, *, source: str = "$") -> BurstCosts:
    """Read a document of costs."""
    tree = parsed(data, source, _check)
    layers = tuple(
        BurstLayer(
            layer["name"],
            layer["single_gpu_us"],
            tuple(LayerOption(*(config[key] for key in ("gpus", *_TIMES))) for config in layer["configs"]),
            tuple(tuple(row) for row in layer.get("xfer_us", ())),
        )
        for layer in tree["layers"]
    )
    return BurstCosts(tree["gpus"], layers)


def _check(tree: dict[str, Any], report: Report) -> None:
    compiled(_SCHEMA, _SCHEMA)(tree, "$", report)
    if report.problems:
        return
    rows = 0
    for at, layer in enumerate(tree["layers"]):
        place = (("$", "layers"), at)
        if layer["id"] != at:
            told = f"layers are a chain and stand in its order: {at} is expected"
            report.add((place, "id"), told, code="wrong-order")
        _check_options(layer["configs"], tree["gpus"], (place, "configs"), report)
        _check_transfers(layer, rows, place, report)
        rows = len(layer["configs"])


def _check_options(configs: list[dict[str, Any]], gpus: int, place: Place, report: Report) -> None:
    known: set[int] = set()
    for at, config in enumerate(configs):
        count = config["gpus"]
        if count > gpus:
            report.add(((place, at), "gpus"), f"{count} GPUs, and there are {gpus}", code="out-of-range")
        if count in known:
            report.add(((place, at), "gpus"), f"{count} GPUs stand here twice", code="duplicate-name")
        known.add(count)


def _check_transfers(layer: dict[str, Any], rows: int, place: Place, report: Report) -> None:
    """Require a row an option of the layer before, a column an own one, and nothing for the first layer."""
    found, columns = layer.get("xfer_us", []), len(layer["configs"])
    if len(found) != rows:
        told = f"{len(found)} rows, and the layer before has {rows} configs"
        report.add((place, "xfer_us"), told, code="wrong-count")
    for at, row in enumerate(found):
        if len(row) != columns:
            told = f"{len(row)} values, and the layer has {columns} configs"
            report.add(((place, "xfer_us"), at), told, code="wrong-count")
