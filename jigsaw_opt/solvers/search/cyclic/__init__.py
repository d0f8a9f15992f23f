"""Moves of the cyclic horizon: shorter periods, jobs inserted modulo the period, decomposition into groups."""
