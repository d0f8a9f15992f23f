"""What a process does for each kind of job."""
