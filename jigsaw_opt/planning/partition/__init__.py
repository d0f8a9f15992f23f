"""Partitions of a model into the stages of a pipeline (PipeDream; Narayanan et al., SOSP'19)."""
