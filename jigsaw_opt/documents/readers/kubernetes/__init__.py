"""Readers of what a Kubernetes cluster and its queues of Kueue say of themselves."""
