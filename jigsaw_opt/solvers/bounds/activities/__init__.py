"""Bounds of instances whose jobs have task graphs."""
