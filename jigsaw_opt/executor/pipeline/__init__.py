"""Pipelines carried out by PyTorch's own runtime, `torch.distributed.pipelining`."""
