"""Packing: columns are patterns of servers, the master program chooses how often each is used."""

from jigsaw_opt.formulations.packing.fluid import fluid_program
from jigsaw_opt.formulations.packing.gangs import (
    Gang,
    GangSite,
    JobKind,
    Needs,
    busy_shares,
    gang_instance,
    gangs,
    kinds,
    needs,
    references_us,
    site,
)
from jigsaw_opt.formulations.packing.levels import cheapest_levels, with_cheapest_levels
from jigsaw_opt.formulations.packing.master import Column, GangTeam, Master, Rates, ServerPattern, column
from jigsaw_opt.formulations.packing.pricing import Priced, Prices, Pricing, Valued

__all__ = [
    "Column",
    "Gang",
    "GangSite",
    "GangTeam",
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
    "fluid_program",
    "gang_instance",
    "gangs",
    "kinds",
    "needs",
    "references_us",
    "site",
    "with_cheapest_levels",
]
