"""What Slurm decides: priorities, fair share, backfill and reservations of servers."""
