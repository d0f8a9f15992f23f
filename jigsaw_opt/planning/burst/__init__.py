"""Burst-parallel plans: how many GPUs each layer of a job gets (DeepPool; Park et al., MLSys'22)."""
