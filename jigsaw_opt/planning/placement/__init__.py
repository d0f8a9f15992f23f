"""Operators on devices so that the largest load is least (Tarnawski et al., NeurIPS'20)."""

from jigsaw_opt.planning.placement.contiguous import contiguous_placement
from jigsaw_opt.planning.placement.exact import exact_placement
from jigsaw_opt.planning.placement.loads import DeviceLoad, Groups, Placed, groups_of, ordered_groups

__all__ = [
    "DeviceLoad",
    "Groups",
    "Placed",
    "contiguous_placement",
    "exact_placement",
    "groups_of",
    "ordered_groups",
]
