"""Costs of the stages of a pipeline as options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.parser import option_of, whole_numbers
from jigsaw_opt.errors import UsageError

if TYPE_CHECKING:
    from jigsaw_opt.planning.pipeline.costs import PipelineCosts

LISTS = {
    "forward_us": "forward pass, as in 10,12,11,10",
    "backward_us": "backward pass; without its part for weights where --weight-us is given",
    "weight_us": "the part of the backward pass for the gradient of the weights, which can wait",
    "transfer_us": "delay between neighbours, both ways; one value fewer than stages",
    "transfer_bytes": "what neighbours send, in place of the delay; for --into",
    "static_bytes": "memory of a stage, held all the time",
    "activation_bytes": "memory that a micro-batch holds from its forward to its backward pass",
    "weight_bytes": "the part of these that the gradient of the weights needs",
}
"""What each list of costs is of, by the name of its argument."""
COSTS: Arguments = {
    f"{option_of(name)} {'US' if name.endswith('_us') else 'BYTES'},…": text for name, text in LISTS.items()
}


def costs_of_options(arguments: argparse.Namespace) -> PipelineCosts:
    """Return the costs that the options state; a single value is for all stages."""
    from jigsaw_opt.planning.pipeline.costs import PipelineCosts

    given = {name: getattr(arguments, name) for name in LISTS}
    values = {
        name: () if text is None else whole_numbers(option_of(name), text, "whole numbers, as in 10,12")
        for name, text in given.items()
    }
    stages = max(len(values["forward_us"]), len(values["backward_us"]))
    for name, own in values.items():
        count = stages - (name in ("transfer_us", "transfer_bytes"))
        if len(own) == 1:
            values[name] = own * count
    if not stages:
        raise UsageError("there are no stages", code="empty", path="--forward-us")
    return PipelineCosts(**values)
