"""Engines from other hands, one module each."""
