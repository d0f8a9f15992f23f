"""Answers of other systems beside ours: each module has the heads, rows and options of a table."""
