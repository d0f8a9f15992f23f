"""Jobs compiled for solvers: operation graphs, task graphs, activity networks, and their timetables."""
