"""What a simulation is of: clusters, models and workloads from files and words."""
