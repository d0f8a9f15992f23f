"""Readers of measured profiles of layers and models."""
