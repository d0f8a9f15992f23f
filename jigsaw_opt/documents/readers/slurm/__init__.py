"""Readers of what Slurm says of its jobs, nodes and priorities."""
