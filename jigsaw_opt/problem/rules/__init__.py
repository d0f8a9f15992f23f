"""What an instance and its parts must keep, whether they are made in Python or read from a document."""
