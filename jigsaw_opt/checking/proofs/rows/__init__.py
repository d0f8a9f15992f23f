"""Linear rows that every correct plan within a limit satisfies (docs/proofs.md: rows of a plan)."""
