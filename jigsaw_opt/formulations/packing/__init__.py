"""Packing: columns are patterns of servers, the master program chooses how often each is used."""

from jigsaw_opt.formulations.packing.coscheduling import (
    Coschedule,
    CoscheduleSite,
    JobKind,
    Needs,
    busy_shares,
    coschedule_instance,
    coschedules,
    kinds,
    needs,
    references_us,
    site,
)
from jigsaw_opt.formulations.packing.master import Column, CoscheduledClasses, Master, Rates, ServerPattern, column
from jigsaw_opt.formulations.packing.pricing import Priced, Prices, Pricing, Valued
from jigsaw_opt.formulations.packing.rate_relaxation import cheapest_levels, rate_relaxation, with_cheapest_levels

__all__ = [
    "Column",
    "Coschedule",
    "CoscheduleSite",
    "CoscheduledClasses",
    "JobKind",
    "Master",
    "Needs",
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
    "needs",
    "rate_relaxation",
    "references_us",
    "site",
    "with_cheapest_levels",
]
