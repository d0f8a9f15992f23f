"""What runs: the shares, the jobs in them, and their speeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.link_routes import LinkRoutes
from jigsaw_opt.simulation.engine.running import Running, Timers, check_speed
from jigsaw_opt.simulation.engine.setting import Setting

__all__ = ["RunningShares"]


class RunningShares:
    """The shares that run, each with how much longer its exchanges take because of the others.

    `shares`: the factor of each share, which links that are up join; who changes them asks for new speeds. `running`:
    the jobs of the shares by number.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._timers = Timers()
        self._routes = None if setting.failures is None else LinkRoutes(setting.cluster)
        self.shares: dict[Share, float] = {}
        self.running: dict[int, Running] = {}
        self.dead: frozenset[int] = frozenset()

    def next_us(self) -> int | None:
        """Return when the next job ends or changes its speed; None where nothing runs."""
        return self._timers.next_us(self.running)

    def due(self, now_us: int) -> Iterator[int]:
        """Yield numbers of the jobs that end or change their speed by now."""
        return self._timers.due(now_us, self.running)

    def begin(self, shares: Sequence[Share], now_us: int) -> None:
        """Take over shares whose jobs run already, from where each is settled."""
        self.shares = dict(zip(shares, self._factors(shares), strict=True))
        for share in shares:
            self._time(share, now_us)

    def set_speeds(self, now_us: int, changed: Iterable[Share]) -> None:
        """Compute the speeds of the shares that changed, and of those whose contention changed with them."""
        stale = dict.fromkeys(changed)
        if self._setting.contention is not None or self._routes is not None:
            shares = list(self.shares)
            for share, factor in zip(shares, self._factors(shares), strict=True):
                if factor != self.shares[share]:
                    self.shares[share] = factor
                    stale[share] = None
        for share in stale:
            for index in share.jobs:
                self.running[index].settle(now_us)
            self._time(share, now_us)

    def _factors(self, shares: Sequence[Share]) -> Sequence[float]:
        """Return how much longer the exchanges of each share take because of the others, or of links that are down."""
        contention, placements = self._setting.contention, [share.gpus for share in shares]
        if contention is not None:
            return contention.factors(placements, self.dead)
        if self._routes is None or not self.dead:
            return [1.0] * len(shares)
        return [self._routes.detour(gpus, self.dead) for gpus in placements]

    def _time(self, share: Share, now_us: int) -> None:
        """Work out the speeds of the jobs of a share from where they are settled."""
        running = [self.running[index] for index in share.jobs]
        members = [one.active.job for one in running]
        speeds = self._setting.performance.speeds(share, members, [one.active.done for one in running])
        for one, speed in zip(running, speeds, strict=True):
            check_speed(one.active, speed, f"at {now_us} us")
            one.speed = speed.stretched(self.shares[share])
            self._timers.set(one)
