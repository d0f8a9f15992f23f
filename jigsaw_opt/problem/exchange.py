"""How a job exchanges its gradients, where that is less than all of them in each step (specification: exchange)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from jigsaw_opt.problem.costs import ceil_fraction
from jigsaw_opt.problem.efficiency import MILLION
from jigsaw_opt.problem.rules.part import CheckedPart


@dataclass(frozen=True, slots=True)
class JobExchange(CheckedPart, definition="exchange"):
    """Compressed gradients, and steps of training without an exchange.

    Parameters
    ----------
    every
        Steps of an iteration, of which only the last one ends with transfers: local steps, or gradients that add up;
        at most 1000000. None for 1.
    bytes
        Bytes of a transfer as a share of those of its bucket: an integer or, as given, ``"1/4"``; at
        most 2^53 - 1, and None for 1.
    progress_ppm
        Progress of a step as a share of that of a step with whole gradients, in millionths; None for all of it.
    """

    every: int | None = None
    bytes: int | str | None = None
    progress_ppm: int | None = None

    def block_us(self, one_pass_us: Sequence[int]) -> tuple[int, ...]:
        """Return the duration of a block by level: all passes but the last one go to full depth.

        Parameters
        ----------
        one_pass_us
            Duration of a pass by level, in microseconds.
        """
        before_us = ((self.every or 1) - 1) * one_pass_us[-1]
        return tuple(before_us + pass_us for pass_us in one_pass_us)

    def sent_bytes(self, size: int) -> int:
        """Return the bytes of the transfer of a bucket of `size` bytes of parameters, rounded up."""
        return size if self.bytes is None else ceil_fraction(Fraction(self.bytes) * size)

    @property
    def progress(self) -> int:
        """Progress of an iteration in millionths of that of one step with whole gradients."""
        return (self.every or 1) * (MILLION if self.progress_ppm is None else self.progress_ppm)
