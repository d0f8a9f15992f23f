"""Facts of an instance that arguments state and use (docs/proofs.md: facts)."""
