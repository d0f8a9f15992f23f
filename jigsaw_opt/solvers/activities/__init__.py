"""Methods for jobs with a shape: list schedules, neighbourhoods and exact models of activities, on both horizons."""
