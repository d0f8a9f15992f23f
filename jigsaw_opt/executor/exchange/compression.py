"""Communication hooks that compress gradients, and add what they leave out to the next gradient (error feedback).

PyTorch has hooks that round to 16 bits (`default_hooks`) and one of low rank (`powerSGD_hook`). Its hook of 8 bits
(`quantization_hooks`) forgets what it rounds away and needs CUDA, and it has none that sends the largest numbers only.

Sources: Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent and its application to data-parallel
distributed training of speech DNNs", Interspeech 2014; Karimireddy, Rebjock, Stich and Jaggi, "Error feedback fixes
SignSGD and other gradient compression schemes", ICML 2019.
"""

# Annotations stay what they are, not text: `DistributedDataParallel` compares those of a hook with its own types.
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from jigsaw_opt.errors import out_of_range
from jigsaw_opt.executor.exchange.by_bucket import broadcast_pieces, received_pieces
from jigsaw_opt.problem.costs import ceil_fraction

_Group = dist.ProcessGroup | None
BLOCK = 256
"""Numbers that share a factor in `EightBit`, which adds 4 bytes to them, or 8 where the numbers have 8."""


class CompressedExchange(ABC):
    """A communication hook with error feedback.

    Each worker adds to its gradient what it has held back, sends part of the sum, and holds back the rest. What is
    held back is a part of a mean, so a worker divides by the number of contributors first: whatever that number is when
    the rest is sent, the means that all workers have received and what they hold back add up to all exact means.

    Attributes
    ----------
    sent_bytes : int
        Bytes that this process has handed over; a message to all others counts once.
    """

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        # `DistributedDataParallel` asks a hook for these names, and processes compare them.
        self.__name__ = self.__qualname__ = f"{type(self).__name__}({', '.join(arguments)})"
        self._memory = WeakIdKeyDictionary()
        self.sent_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes that this process takes for what it holds back: those of the gradients, of 4 bytes a number or more."""
        return sum(held.nbytes for held in self._memory.values())  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Hold nothing back, as where the parameters are others now; `PartialBackprop` calls this where it loads."""
        self._memory.clear()

    def __call__(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        """Exchange a bucket of `DistributedDataParallel`; `state` is the process group, or None for the default one."""
        parameters = bucket.parameters()
        self.average(bucket.buffer(), parameters, [True] * len(parameters), dist.get_process_group_ranks(state), state)
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    @torch.no_grad()
    def average(
        self,
        gradients: Tensor,
        parameters: Sequence[nn.Parameter],
        has_gradient: Sequence[bool],
        ranks: Sequence[int],
        group: _Group,
    ) -> None:
        """Overwrite gradients with the mean over those who contribute, with the same bits in all processes.

        Who does not contribute gives nothing, and holds back what it held back before. So do all where the mean is not
        finite: training loops skip such a step.

        Parameters
        ----------
        gradients
            The gradients of `parameters` in a row; without a meaning in a process that does not contribute.
        parameters
            Whose gradients they are.
        has_gradient
            Whether a contributor has a gradient of each parameter.
        ranks
            Ranks of the contributors among all processes, ascending.
        group
            All processes that receive the mean; None for the default group.
        """
        rest = None
        if dist.get_rank() in ranks:
            rest = self._with_memory(gradients, parameters, has_gradient, len(ranks))
        mean = self._exchange(rest, gradients, ranks, group)
        gradients.copy_(mean)
        if rest is not None and bool(mean.isfinite().all()):
            pieces = torch.split(rest, [parameter.numel() for parameter in parameters])
            for parameter, piece, has in zip(parameters, pieces, has_gradient, strict=True):
                if has:
                    self._memory[parameter] = piece.clone()

    def _with_memory(
        self, gradients: Tensor, parameters: Sequence[nn.Parameter], has_gradient: Sequence[bool], contributors: int
    ) -> Tensor:
        """Return this worker's part of the mean and what it has held back; zeros where there is no gradient."""
        total = gradients.to(torch.promote_types(gradients.dtype, torch.float32), copy=True).div_(contributors)
        pieces = torch.split(total, [parameter.numel() for parameter in parameters])
        for parameter, piece, has in zip(parameters, pieces, has_gradient, strict=True):
            if not has:
                piece.zero_()
            elif parameter in self._memory:
                piece.add_(self._memory[parameter].to(piece))
        return total

    @abstractmethod
    def _exchange(self, own: Tensor | None, like: Tensor, ranks: Sequence[int], group: _Group) -> Tensor:
        """Return the sum of what the contributors send of `own`, and leave there what this one has not sent.

        `own`: None in a process that does not contribute. `like`: as long as the sum, of the type and on the device of
        the gradients.
        """

    def _broadcast(self, messages: Mapping[int, Tensor], group: _Group) -> None:
        """Overwrite messages of bytes with those of their senders."""
        broadcast_pieces(messages, group)
        self.sent_bytes += sum(message.nbytes for rank, message in messages.items() if rank == dist.get_rank())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process begins with: nothing is held back there."""
        return type(self), self._arguments


class TopK(CompressedExchange):
    """A communication hook that sends the largest numbers of a gradient, and adds the others to the next gradient.

    Parameters
    ----------
    share
        The share of numbers of each bucket that is sent, such as ``"1/100"``, above 0 and at most 1, rounded up.

    Raises
    ------
    UsageError
        The share is no fraction, or out of range.

    Notes
    -----
    Each number goes with its place, of 4 bytes. All contributors send to all workers, so with many workers a small
    share is needed: a worker receives ``2 * share * w`` of the bytes of its 4-byte gradients, where the exchange of
    whole ones takes about 2 of them.
    """

    def __init__(self, share: str | Fraction) -> None:
        try:
            self._share = Fraction(share) if isinstance(share, str | Fraction) else Fraction(0)
        except (ValueError, ZeroDivisionError):
            self._share = Fraction(0)
        if not 0 < self._share <= 1:
            message = f"the share is a fraction in quotes, such as '1/100', above 0 and at most 1, not {share!r}"
            raise out_of_range("share", message)
        super().__init__(str(self._share))

    def _exchange(self, own: Tensor | None, like: Tensor, ranks: Sequence[int], group: _Group) -> Tensor:
        if own is None:
            message = torch.empty(sum(self._sizes(like)), dtype=torch.uint8, device=like.device)
        else:
            message = self._message(own, like)
        messages = [message if rank == dist.get_rank() else torch.empty_like(message) for rank in ranks]
        self._broadcast(dict(zip(ranks, messages, strict=True)), group)
        return self._total(messages, like)

    def _sizes(self, like: Tensor) -> list[int]:
        """Return the bytes of the places and of the values in a message."""
        count = ceil_fraction(self._share * like.numel())
        return [count * _places(like).itemsize, count * like.itemsize]

    def _message(self, own: Tensor, like: Tensor) -> Tensor:
        """Return the places and values of the largest numbers, as bytes, and leave in `own` what is not in them."""
        found = own.abs().topk(ceil_fraction(self._share * own.numel()), sorted=False).indices
        values = own[found].to(like.dtype)
        own[found] -= values.to(own.dtype)
        return torch.cat([found.to(_places(own)).view(torch.uint8), values.view(torch.uint8)])

    def _total(self, messages: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the sum of messages, one after the other, so that all processes add up in the same order."""
        total = torch.zeros_like(like)
        for received in messages:
            at, numbers = torch.split(received, self._sizes(like))
            total.index_add_(0, at.view(_places(like)).long(), numbers.clone().view(like.dtype))
        return total


def _places(numbers: Tensor) -> torch.dtype:
    """Return the type of a place in a row of numbers."""
    return torch.int32 if numbers.numel() < 2**31 else torch.int64


class EightBit(CompressedExchange):
    """A communication hook that sends gradients as integers of 8 bits, and adds what it rounds off to the next ones.

    The numbers of each 256 in a row are rounded to multiples of a 127th of the largest. Each contributor adds up one
    piece of a bucket and rounds the sum again, so about a quarter of the bytes of 4-byte gradients is sent, with any
    number of workers.
    """

    def __init__(self) -> None:
        super().__init__()

    def _exchange(self, own: Tensor | None, like: Tensor, ranks: Sequence[int], group: _Group) -> Tensor:
        blocks = -(-like.numel() // BLOCK)
        factor = torch.promote_types(like.dtype, torch.float32).itemsize
        message = torch.zeros(blocks, BLOCK + factor, dtype=torch.uint8, device=like.device)
        pieces = dict(zip(ranks, torch.tensor_split(message, len(ranks)), strict=True))
        if own is not None:
            padded = nn.functional.pad(own, (0, blocks * BLOCK - own.numel())).view(blocks, BLOCK)
            mine = dict(zip(ranks, torch.tensor_split(padded, len(ranks)), strict=True))
            for rank, piece in pieces.items():
                if rank != dist.get_rank():
                    piece.copy_(self._message(mine[rank]))
                    self.sent_bytes += piece.nbytes
            total = mine[dist.get_rank()]
            for received in received_pieces(pieces, group):
                total += self._numbers(received, own.dtype)
            pieces[dist.get_rank()].copy_(self._message(total))
            own.copy_(padded.view(-1)[: own.numel()])
        self._broadcast(pieces, group)
        return self._numbers(message, like.dtype).view(-1)[: like.numel()]

    @classmethod
    def _message(cls, blocks: Tensor) -> Tensor:
        """Return blocks of numbers as integers of 8 bits, each with its factor behind, and leave there what is lost.

        Numbers of a block that is not finite are lost, but not the factor, so all processes see it.
        """
        factors = (blocks.abs().amax(1) / 127).contiguous()
        codes = (blocks / factors.unsqueeze(1)).nan_to_num_(0, 127, -127).round_().clamp_(-127, 127)
        found = torch.cat(
            [codes.to(torch.int8).view(torch.uint8), factors.view(torch.uint8).view(-1, factors.itemsize)], 1
        )
        blocks -= cls._numbers(found, blocks.dtype)
        return found

    @staticmethod
    def _numbers(message: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the blocks of numbers that stand in a message."""
        codes, factors = message[:, :BLOCK], message[:, BLOCK:]
        numbers = factors.contiguous().view(torch.float32 if factors.shape[1] == 4 else torch.float64)
        return codes.view(torch.int8).to(dtype) * numbers.to(dtype)
