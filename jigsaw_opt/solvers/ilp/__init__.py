"""`ilp`: the mixed-integer program of the finite horizon, solved by HiGHS or exported."""

from jigsaw_opt.solvers.ilp.solver import ILP, MOST_EXPORTED, Ilp, model_document

__all__ = ["ILP", "MOST_EXPORTED", "Ilp", "model_document"]
