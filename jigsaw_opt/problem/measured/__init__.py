"""What a machine measured: layers of models, and the times of a plan."""
