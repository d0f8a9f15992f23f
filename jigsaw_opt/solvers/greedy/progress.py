"""One job's way through its iterations, once it is decided which piece starts when."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.solvers.greedy.placed import PlacedJob

__all__ = ["Progress"]


class Progress:
    """What a placed job has started, and when its current iteration lets the rest start.

    Parameters
    ----------
    job
        The job.

    Attributes
    ----------
    levels, blocks, transfers
        Levels of the slots, starts of the blocks and of the transfers, by iteration so far.
    blocks_left
        Blocks of the current iteration that have not started.
    ready
        When each bucket is ready at all its contributors; final once no block is left.
    exchange_end
        End of the latest transfer of the current iteration.
    end
        Latest end in the current iteration; its barrier once all has started.
    """

    __slots__ = (
        "_exchange",
        "_starts",
        "blocks",
        "blocks_left",
        "end",
        "exchange_end",
        "job",
        "levels",
        "ready",
        "transfers",
    )

    def __init__(self, job: PlacedJob) -> None:
        self.job = job
        self.levels: list[Sequence[int]] = []
        self.blocks: list[list[int]] = []
        self.transfers: list[list[int]] = []
        self.end = job.job.release_us
        self.blocks_left = self.exchange_end = 0
        self.ready: list[int] = []
        self._exchange: tuple[int, ...] = ()
        self._starts: list[int] = []

    def open(self, levels: Sequence[int]) -> None:
        """Begin the next iteration with these levels."""
        self._exchange = self.job.exchange[len(self.levels)]
        self._starts = []
        self.exchange_end = 0
        self.levels.append(levels)
        self.blocks.append([0] * len(levels))
        self.transfers.append(self._starts)
        self.blocks_left = len(levels)
        self.ready = [0] * len(self._exchange)

    def start_block(self, slot: int, start: int) -> int:
        """Start the block of a slot; returns its end."""
        level, table, ready = self.levels[-1][slot], self.job.tables[slot], self.ready
        self.blocks[-1][slot] = start
        self.blocks_left -= 1
        for bucket in range(min(level, len(ready))):
            moment = start + table[bucket]
            if moment > ready[bucket]:
                ready[bucket] = moment
        end = start + table[level - 1]
        if end > self.end:
            self.end = end
        return end

    def transfer_from(self) -> int:
        """Earliest start of the next transfer; there is one, and all blocks have started."""
        return max(self.exchange_end, self.ready[len(self._starts)])

    def start_transfer(self, start: int) -> int:
        """Start the next transfer; returns its end."""
        self.exchange_end = end = start + self._exchange[len(self._starts)]
        self._starts.append(start)
        if end > self.end:
            self.end = end
        return end

    def exchange_alone(self) -> None:
        """Start all transfers, each as soon as it may: no other job shares their way."""
        for _ in self._exchange:
            self.start_transfer(self.transfer_from())

    @property
    def exchanged(self) -> bool:
        """Whether every transfer of the current iteration has started."""
        return len(self._starts) == len(self._exchange)

    @property
    def uses_links(self) -> bool:
        """Whether the transfers of the current iteration compete for links."""
        return bool(self._exchange and self.job.links)

    @property
    def complete(self) -> bool:
        """Whether the current iteration is the last one."""
        return len(self.levels) == self.job.job.iterations
