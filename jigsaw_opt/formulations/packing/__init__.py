"""Packing: columns are patterns of servers, the master program chooses how often each is used."""

from jigsaw_opt.formulations.packing.cheapest_levels import cheapest_levels, with_cheapest_levels
from jigsaw_opt.formulations.packing.coscheduling import (
    Coschedule,
    CoscheduleSite,
    JobKind,
    busy_shares,
    coschedule_instance,
    coschedules,
    kinds,
    references_us,
    site,
)
from jigsaw_opt.formulations.packing.master import Column, CoscheduledClasses, Master, Rates, ServerPattern, column
from jigsaw_opt.formulations.packing.pricing import Priced, Prices, Pricing, Valued

__all__ = [
    "Column",
    "Coschedule",
    "CoscheduleSite",
    "CoscheduledClasses",
    "JobKind",
    "Master",
    "Priced",
    "Prices",
    "Pricing",
    "Rates",
    "ServerPattern",
    "Valued",
    "busy_shares",
    "cheapest_levels",
    "column",
    "coschedule_instance",
    "coschedules",
    "kinds",
    "references_us",
    "site",
    "with_cheapest_levels",
]
