"""`portfolio`: search for plans, bounds and the exact model, side by side on one incumbent and one bound."""

from jigsaw_opt.solvers.portfolio.solver import PORTFOLIO, Portfolio

__all__ = ["PORTFOLIO", "Portfolio"]
