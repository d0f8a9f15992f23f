"""Packing: columns are patterns of servers, the master program chooses how often each is used."""

from jigsaw_opt.formulations.packing.gangs import (
    Gang,
    Kind,
    Site,
    busy_shares,
    gang_instance,
    gangs,
    kinds,
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
    "gang_instance",
    "gangs",
    "kinds",
    "references_us",
    "site",
    "with_cheapest_levels",
]
