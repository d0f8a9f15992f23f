"""Methods for jobs with a task graph: list schedules and searches of activities, on both horizons."""
