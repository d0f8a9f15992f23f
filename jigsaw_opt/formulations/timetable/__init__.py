"""The sets, data and variables that every timetable model has, whatever its engine."""
