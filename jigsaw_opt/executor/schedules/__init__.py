"""What a run is asked to do, in which order, by whose clock, and what is noted of it."""
