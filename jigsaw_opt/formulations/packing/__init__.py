"""Packing: columns are patterns of servers, the master program chooses how often each is used."""

from jigsaw_opt.formulations.packing.fluid import fluid_program
from jigsaw_opt.formulations.packing.gangs import (
    Gang,
    Kind,
    Needs,
    Site,
    busy_shares,
    gang_instance,
    gangs,
    kinds,
    needs,
    references_us,
    site,
)
from jigsaw_opt.formulations.packing.levels import cheapest_levels, with_cheapest_levels
from jigsaw_opt.formulations.packing.master import Column, Master, Pattern, Rates, Team, column
from jigsaw_opt.formulations.packing.pricing import Priced, Prices, Pricing, Valued

__all__ = [
    "Column",
    "Gang",
    "Kind",
    "Master",
    "Needs",
    "Pattern",
    "Priced",
    "Prices",
    "Pricing",
    "Rates",
    "Site",
    "Team",
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
