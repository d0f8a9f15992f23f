"""Subcommands on how one job trains: its layers on GPUs, its profile, and its run."""
