"""Random numbers that depend on what is asked for alone, whatever else the process has drawn.

A process hosts workers of several jobs, and a run may go on in another one. So the generators are not saved: they begin
anew for each worker and iteration, and with them dropout, and whatever a batch draws by torch, Python or numpy.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import torch

__all__ = ["begin_draws", "draw_number", "own_draws"]


def draw_number(seed: int, worker: int, iteration: int) -> int:
    """Return the number from which the draws of a worker in an iteration begin, 0 to 2**56 - 1."""
    return int.from_bytes(sha256(f"{seed} {worker} {iteration}".encode()).digest()[:7])


def begin_draws(number: int) -> None:
    """Have the generators of torch, on the CPU and the current CUDA device, of Python and of numpy begin from `number`.

    Parameters
    ----------
    number
        At least 0; numpy takes its last 32 bits.
    """
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
    before, before_numpy = random.getstate(), None
    if "numpy" in sys.modules:
        import numpy.random

        before_numpy = numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            begin_draws(number)
            yield
    finally:
        random.setstate(before)
        if before_numpy is not None:
            numpy.random.set_state(before_numpy)
