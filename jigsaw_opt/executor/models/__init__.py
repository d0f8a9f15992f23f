"""Models in segments: what an instance asks for, built, called with a batch, and stopped at a level."""
