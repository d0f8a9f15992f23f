"""`cpsat`: the exact models on CP-SAT, one for each horizon and kind of job."""

from jigsaw_opt.solvers.cpsat.solver import CPSAT, Cpsat

__all__ = ["CPSAT", "Cpsat"]
