"""Those who talk to a live scheduler for others."""
