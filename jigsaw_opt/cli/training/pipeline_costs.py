"""Costs of the stages of a pipeline as options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.errors import UsageError, malformed

if TYPE_CHECKING:
    from jigsaw_opt.planning.pipeline.stages import PipelineCosts

__all__ = ["LISTS", "configure_costs", "costs_of_options"]

LISTS = (
    "forward_us",
    "backward_us",
    "weight_us",
    "transfer_us",
    "transfer_bytes",
    "static_bytes",
    "activation_bytes",
    "weight_bytes",
)


def configure_costs(group: argparse._ArgumentGroup) -> None:
    """Add the arguments."""
    helps = (
        "forward pass, as in 10,12,11,10",
        "backward pass; without its part for weights where --weight-us is given",
        "the part of the backward pass for the gradient of the weights, which can wait",
        "delay between neighbours, both ways; one value fewer than stages",
        "what neighbours send, in place of the delay; for --into",
        "memory of a stage, held all the time",
        "memory that a micro-batch holds from its forward to its backward pass",
        "the part of these that the gradient of the weights needs",
    )
    for name, text in zip(LISTS, helps, strict=True):
        metavar = "US,…" if name.endswith("_us") else "BYTES,…"
        group.add_argument(option_of(name), metavar=metavar, help=text)


def costs_of_options(arguments: argparse.Namespace) -> PipelineCosts:
    """Return the costs that the options state; a single value is for all stages."""
    from jigsaw_opt.planning.pipeline.stages import PipelineCosts

    values = {name: _numbers(arguments, name) for name in LISTS}
    stages = max(len(values["forward_us"]), len(values["backward_us"]))
    for name, own in values.items():
        count = stages - (name in ("transfer_us", "transfer_bytes"))
        if len(own) == 1:
            values[name] = own * count
    if not stages:
        raise UsageError("there are no stages", code="empty", path="--forward-us")
    return PipelineCosts(**values)


def _numbers(arguments: argparse.Namespace, name: str) -> tuple[int, ...]:
    text = getattr(arguments, name)
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**53 for part in parts):
        raise malformed(
            option_of(name),
            f"{option_of(name)} is a list of whole numbers, as in 10,12, not {text!r}",
        )
    return tuple(map(int, parts))
