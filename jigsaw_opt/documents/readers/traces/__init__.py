"""Readers of traces: the workloads of clusters, one module a format."""
