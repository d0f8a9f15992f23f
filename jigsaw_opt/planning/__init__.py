"""Planners that make stages and shapes out of measured layers."""
