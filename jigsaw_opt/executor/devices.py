"""The devices of this machine, by name."""

from __future__ import annotations

import torch

from jigsaw_opt.errors import UsageError

__all__ = ["device_name", "device_of"]


def device_of(kind: str) -> torch.device:
    """Return the device of a kind, ``cpu`` or ``cuda``."""
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError(
            "this PyTorch finds no CUDA device; --device cpu runs on the CPU", code="unsupported", path="device"
        )
    return torch.device("cuda", 0)


def device_name(device: torch.device) -> str:
    """Return what a device is called, as a name in documents."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return name.lower().replace(" ", "-").replace("/", "-")
