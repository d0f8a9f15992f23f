"""Random numbers that depend on what is asked for alone, whatever else the process has drawn.

A process hosts workers of several jobs, and a run may go on in another one. So the generators are not saved: they begin
anew for each worker and iteration, and with them dropout, and whatever a batch draws by torch, Python or numpy. Of a
training that is code of the user's own they go on instead, each worker's by itself, and are saved.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import torch


def draw_number(seed: int, worker: int, iteration: int) -> int:
    """Return the number from which the draws of a worker in an iteration begin."""
    return int.from_bytes(sha256(f"{seed} {worker} {iteration}".encode()).digest()[:7])


def begin_draws(number: int) -> None:
    """Have the generators of torch (CPU and current CUDA device), of Python and of numpy begin from `number`."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        import numpy.random

        numpy.random.seed(number % 2**32)


@contextmanager
def own_draws(number: int) -> Iterator[None]:
    """Have the generators begin from `number` in the block, and give them back as they were, those of CUDA excepted."""
    device = torch.device("cpu")
    before = generator_states(device)
    try:
        begin_draws(number)
        yield
    finally:
        set_generators(before, device)


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the generators of torch, on the CPU and on `device`, of Python and of numpy, if it is there.

    They are tensors and plain values, so that a file of them is read without running code.
    """
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        import numpy.random

        kept: Any = numpy.random.get_state()
        states["numpy"] = (kept[0], kept[1].tolist(), *kept[2:])
    return states


def set_generators(states: Mapping[str, Any], device: torch.device) -> None:
    """Set the generators of random numbers back to what `generator_states` gave."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
    if "numpy" in states:
        import numpy.random

        numpy.random.set_state(states["numpy"])
