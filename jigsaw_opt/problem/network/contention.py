"""Models of how transfers that run at once share the links: two of them, one interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from jigsaw_opt.problem.cluster import Channel


@runtime_checkable
class LinkSharing(Protocol):
    """A model of how links are divided among the transfers that use them at one moment."""

    def rates(self, channels: Sequence[Channel], bandwidths: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the rate of every transfer.

        Parameters
        ----------
        channels
            What each transfer uses. ``rate`` is its rate alone, at least 1; one without links keeps it.
        bandwidths
            Bytes per second of every link, at least 1.

        Returns
        -------
        tuple of Fraction
            Bytes per second of each transfer, in the order of `channels`.
        """


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Max-min fair rates: none can grow but at the cost of one that is no larger."""

    def rates(self, channels: Sequence[Channel], bandwidths: Sequence[int]) -> tuple[Fraction, ...]:
        """Fill rates progressively, in exact rationals.

        All rates grow together; a transfer stops where it has its rate alone or one of its links is full.

        In bytes a second, by transfer.

        `bandwidths`: bandwidth of every link of the cluster, in bytes a second.

        References
        ----------
        Bertsekas and Gallager, *Data Networks*, section 6.5.2.
        """
        rates = [Fraction(channel.rate) for channel in channels]
        left = {link: Fraction(bandwidths[link]) for channel in channels for link in channel.links}
        growing = dict(users(channels))
        waiting = [k for k, channel in enumerate(channels) if channel.links]
        while waiting:
            # The rate at which the next link fills up if all that still grow rise together.
            level = min(left[link] / count for link, count in growing.items() if count)
            full = {link for link, count in growing.items() if count and left[link] == level * count}
            # Transfers with no higher rate of their own stop first; only without any do the full links stop theirs.
            small = [k for k in waiting if rates[k] <= level]
            stopped = small or [k for k in waiting if full.intersection(channels[k].links)]
            for k in stopped:
                rates[k] = min(rates[k], level)
                for link in channels[k].links:
                    left[link] -= rates[k]
                    growing[link] -= 1
            waiting = sorted(set(waiting).difference(stopped))
        return tuple(rates)


@dataclass(frozen=True, slots=True)
class Degraded:
    """Each link gives every one of its users its bandwidth over ``f(alpha, k)`` (SJF-BCO, equations 6 and 7).

    `alpha`: loss by contention; at 0 a link is shared equally and nothing is lost. `share`: portion of the users of a
    link that send at once, in (0, 1]: their ``xi_1``. `uncontended`: portion of a transfer alone that others do not
    slow down, in [0, 1): 0 in the paper.
    """

    alpha: Fraction
    share: Fraction = Fraction(1)
    uncontended: Fraction = Fraction(0)

    def slowdown(self, sharing: int) -> Fraction:
        """Return the time of a transfer with `sharing` users on its fullest link, itself included, over that alone."""
        contended = degradation(self.alpha, self.share * sharing)
        return self.uncontended + (1 - self.uncontended) * contended

    def rates(self, channels: Sequence[Channel], bandwidths: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the least that a link of the transfer gives, and no more than its rate alone.

        In bytes a second, by transfer.

        `bandwidths`: bandwidth of every link of the cluster, in bytes a second.
        """
        sharing = users(channels)
        return tuple(
            min([Fraction(channel.rate), *(bandwidths[k] / self.slowdown(sharing[k]) for k in channel.links)])
            for channel in channels
        )


def users(channels: Iterable[Channel]) -> dict[int, int]:
    """Return the number of transfers that use each link, for links that are used."""
    count: dict[int, int] = {}
    for channel in channels:
        for link in channel.links:
            count[link] = count.get(link, 0) + 1
    return count


def degradation(alpha: Fraction, sharing: Fraction | int) -> Fraction:
    """Return the bandwidth of a link over what each of its users gets, ``f(alpha, k) = k + alpha (k - 1)``.

    Below one user it is 1: less would be more than the bandwidth (SJF-BCO, section 4.1, clamped).
    """
    users = max(Fraction(1), Fraction(sharing))
    return users + alpha * (users - 1)
