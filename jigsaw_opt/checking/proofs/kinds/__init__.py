"""Kinds of argument (docs/proofs.md: kinds of argument), each a function that returns what it proves."""
