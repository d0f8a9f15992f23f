"""The orders of activities in a plan: annealed, and searched in time."""
