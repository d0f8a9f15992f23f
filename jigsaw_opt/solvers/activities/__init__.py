"""Methods for jobs with a shape: list schedules, and exact models of activities, on both horizons."""
