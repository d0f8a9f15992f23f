"""Sweeps: a list of independent tasks, run by an engine, each result kept durably as soon as it is there.

`task`, `record` and the engines know nothing of what a task does; `bench` measures solvers with them, and
`simulations` replays workloads.
"""
