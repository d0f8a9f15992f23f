"""The orders of activities in a plan: annealed, and searched by neighbourhoods and in time."""
