"""Kueue: admission within quotas, borrowing, and whom a job preempts."""
