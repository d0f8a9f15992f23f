"""Bounds of instances whose jobs have shapes."""
