"""Subcommands that list, make, convert and check what other subcommands read."""
