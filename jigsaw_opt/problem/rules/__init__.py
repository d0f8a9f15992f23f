"""The rules for an instance and its parts, whether they are made in Python or read from a document."""
