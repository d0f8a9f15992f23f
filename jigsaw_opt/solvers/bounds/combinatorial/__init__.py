"""Relaxations that take milliseconds at any size: critical paths, GPU work, transfers over links."""
