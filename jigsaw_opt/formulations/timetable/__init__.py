"""What every statement of the timetable rests on, whatever its engine: sets, data and variables by their meaning."""
