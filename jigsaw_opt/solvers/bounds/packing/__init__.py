"""Relaxations that pack items into bins: workers on GPUs, jobs on links, everything at once."""
