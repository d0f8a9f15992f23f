"""Costs of burst-parallel layers: what is read, and every contradiction at its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt.documents.readers.profiles.burst_costs import LayerOption, read_burst_costs
from tests.refusals import refuses


def config(gpus: int) -> dict[str, Any]:
    return {"gpus": gpus, "gpu_us": 9 / gpus, "fwd_us": 3 / gpus, "bwd_us": 6 / gpus, "sync_us": gpus - 1}


def costs() -> dict[str, Any]:
    """Two layers, the first on 1 or 2 GPUs, the second on 1, 2 or 4."""
    return {
        "gpus": 4,
        "layers": [
            {"id": 0, "name": "conv", "single_gpu_us": 9, "configs": [config(1), config(2)]},
            {
                "id": 1,
                "name": "linear",
                "single_gpu_us": 5.5,
                "configs": [config(1), config(2), config(4)],
                "xfer_us": [[0, 1, 2], [3, 4, 5]],
            },
        ],
    }


def with_value(tree: dict[str, Any], path: tuple[str | int, ...], value: Any) -> str:
    """Return a document in which one place has another value."""
    *above, last = path
    at: Any = tree
    for step in above:
        at = at[step]
    at[last] = value
    return json.dumps(tree)


def test_costs_are_read_and_limited_to_fewer_gpus() -> None:
    read = read_burst_costs(json.dumps(costs()))
    assert read.single_gpu_us == 14.5
    assert read.layers[0].options == (LayerOption(1, 9, 3, 6, 0), LayerOption(2, 4.5, 1.5, 3, 1))
    limited = read.limited(2)
    assert limited.gpus == 2
    assert [[option.gpus for option in layer.options] for layer in limited.layers] == [[1, 2], [1, 2]]
    assert limited.layers[1].transfer_us == ((0, 1), (3, 4))
    assert read.limited(1).layers[1].transfer_us == ((0,),)
    assert read.limited(8) == read


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("layers", 0, "name"), 3, ["wrong-type $.layers[0].name"]),
        (("layers", 1, "id"), 0, ["wrong-order $.layers[1].id"]),
        (("gpus",), 2, ["out-of-range $.layers[1].configs[2].gpus"]),
        (("layers", 0, "configs", 1, "gpus"), 1, ["duplicate-name $.layers[0].configs[1].gpus"]),
        (("layers", 0, "xfer_us"), [[1, 2]], ["wrong-count $.layers[0].xfer_us"]),
        (("layers", 1, "xfer_us", 1), [3], ["wrong-count $.layers[1].xfer_us[1]"]),
    ],
)
def test_costs_that_contradict_each_other_are_refused(path: tuple[str | int, ...], to: Any, found: list[str]) -> None:
    with refuses(*found):
        read_burst_costs(with_value(costs(), path, to))
