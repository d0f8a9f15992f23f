"""Carrying out a plan: one process a GPU, blocks and transfers in the plan's order, and what they took."""
