"""Reader of the traces of PyTorch's profiler."""
