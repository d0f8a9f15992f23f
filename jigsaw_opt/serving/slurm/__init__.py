"""A client of Slurm: it tells a scheduler what happens on the cluster, and carries out what the scheduler decides."""
