"""Methods for jobs with a task graph: list schedules, neighbourhoods and models of activities, on both horizons."""
