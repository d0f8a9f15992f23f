"""GPUs for jobs: pools, what is free, and which of it a policy takes."""
