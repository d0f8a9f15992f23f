"""Planners: stages and shapes out of measured layers, and background jobs in what others leave."""
