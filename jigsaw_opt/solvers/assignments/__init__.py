"""Jobs on GPUs: what each asks for, where it may be, at which levels, and placements by simple rules."""
