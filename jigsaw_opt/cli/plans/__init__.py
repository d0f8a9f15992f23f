"""Subcommands that make, check, explain, draw and export the plan of an instance, and that compare solvers."""
