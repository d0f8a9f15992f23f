"""Pictures of a plan: interactive HTML, PNG, Perfetto traces and tables."""
