"""Solvers measured on instances: the tasks, their rows, what the rows say together."""
