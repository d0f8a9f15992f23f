"""Schedules of pipelines: named ones, and those that a solver finds."""
