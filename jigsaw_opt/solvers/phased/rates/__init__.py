"""Jobs at rates of iterations, without a timetable."""
