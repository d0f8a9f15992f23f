"""Ways to solve, set against each other on the same instances and seeds, by turns."""
