"""Subcommands that replay the jobs of a cluster over days."""
