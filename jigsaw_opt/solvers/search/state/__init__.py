"""What a search holds: partial schedules and the calendars of their GPUs and links."""
