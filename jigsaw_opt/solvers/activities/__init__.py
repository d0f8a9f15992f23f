"""Methods for jobs with a shape: exact models of activities on both horizons."""
