"""The methods: bounds, greedy, the exact solvers, and the one call that runs and checks them.

A solver is found by the entry-point group ``jigsaw_opt.solvers`` (see `jigsaw_opt.solvers.registry`).
"""
