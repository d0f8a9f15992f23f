"""List scheduling of placed activities on the finite horizon, by a rank of all of them.

At each moment every free GPU and link takes, of what is ready, the activity of the best rank for which memory suffices
and that no power cap forbids beside what runs. Where jobs take memory in time, the first activity of a job needs all
that the job takes while it is present.
It never locks itself up on memory. Beside the schedule there is a *reserve*: an order of all activities in which memory
suffices when they are done one after the other. An activity is started only if the rest of the reserve is still such an
order behind it. The first of the reserve can therefore always be started once nothing runs, and so it ends.
Of jobs in time, the reserve counts for those that have begun: once they have ended, any other one finds room alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain

from jigsaw_opt.problem.clock import check_deadline, checking_deadline
from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.activities.held_memory import HeldMemory, longest_tails
from jigsaw_opt.solvers.activities.presence import PresentJobs


class ListScheduler:
    """Schedules the same placed activities by one rank after another.

    `reserve`: an order of them, each after those that it waits for, in which memory suffices. Each keeps all power caps
    alone.
    """

    def __init__(self, flat: FlatActivities, reserve: Sequence[int]) -> None:
        self.flat, self.successors, self.missing = flat, flat.successors(), flat.wait_counts()
        self.reserves: list[list[int]] = [[] for _ in flat.room]
        for activity in reserve:
            for gpu in {gpu for gpu, _, _ in (*flat.opens[activity], *flat.closes[activity])}:
                self.reserves[gpu].append(activity)
        self.waits = _waits(flat, self.successors)
        self.under: list[set[int]] = [set() for _ in flat.limits]
        for resources, uses in zip(flat.resources, flat.uses, strict=False):
            for capacity, _ in uses:
                self.under[capacity].update(resources)
        used = [resource for own in flat.resources for resource in own]
        self.width = max([len(flat.room), *(resource + 1 for resource in used)])

    def run(self, rank: Sequence[int], patience: int = 0, ahead: float | None = None) -> tuple[list[int], list[int]]:
        """Schedule by a rank, least first."""
        return _ListRun(self, rank, patience, ahead).run()


class _ListRun:
    """One schedule in the making."""

    def __init__(self, scheduler: ListScheduler, rank: Sequence[int], patience: int, ahead: float | None) -> None:
        self.flat, self.successors, self.rank = scheduler.flat, scheduler.successors, rank
        self.patience = patience
        # The lists of what waits hold ranks, which are sorted as they are; this leads back to the activities.
        self.by_rank = [0] * len(rank)
        for activity, place in enumerate(rank):
            self.by_rank[place] = activity
        self.missing, self.ready = list(scheduler.missing), list(scheduler.flat.release_us)
        self.memory = HeldMemory(self.flat)
        self.presence = PresentJobs(self.flat, self.memory) if self.flat.residents else None
        self.safety = _ReserveSafety(self.flat, scheduler.reserves, self.presence)
        self.waiting: list[list[int]] = [[] for _ in range(scheduler.width)]
        self.coming: list[set[int]] = [set() for _ in range(scheduler.width)]
        self.free = [0] * scheduler.width
        self.start, self.order = [0] * len(rank), list[int]()
        self.openings = None if ahead is None else _Openings(self.flat, scheduler.waits, ahead)
        self.taken = _CapacitiesInUse(self.flat, scheduler.under) if self.flat.limits else None
        # What becomes ready, and (as negative numbers) resources that become free.
        self.events = [(self.ready[a], a) for a, count in enumerate(self.missing) if count == 0]
        self.events.sort()
        # What begins a job that takes memory keeps others out until it ends, so that it is worth waiting for.
        for _, activity in self.events if self.presence is not None else ():
            for resource in self.flat.resources[activity]:
                self.coming[resource].add(activity)

    def run(self) -> tuple[list[int], list[int]]:
        events, now, widest = self.events, 0, 0
        while events or len(self.order) < len(self.start):
            check_deadline()
            if not events:
                # All that is ready was held back: a GPU may go further ahead.
                widest += 1
                assert self.openings is not None and widest <= len(self.start), "the reserve can always go on"
                self.openings.widen()
                events += [(now, ~resource) for resource, waiting in enumerate(self.waiting) if waiting]
            now, looked_at = events[0][0], set[int]()
            while events and events[0][0] == now:
                _, number = heappop(events)
                if number < 0:
                    looked_at.add(~number)
                elif not self.flat.resources[number]:
                    self._start(number, now)
                else:
                    for resource in self.flat.resources[number]:
                        self.coming[resource].discard(number)
                        insort(self.waiting[resource], self.rank[number])
                        looked_at.add(resource)
            if self.taken is not None:
                looked_at |= self.taken.release(now)
            if self.presence is not None and self.presence.release(now):
                looked_at.update(resource for resource, waiting in enumerate(self.waiting) if waiting)
            for resource in sorted(looked_at):
                if self.free[resource] <= now:
                    self._take(resource, now)
        return self.start, self.order

    def _take(self, resource: int, now: int) -> None:
        """Let a resource take the best of what waits for it, as far as there is any that may start."""
        for place in self.waiting[resource]:
            activity = self.by_rank[place]
            if any(self.free[other] > now for other in self.flat.resources[activity]):
                continue
            if self._better_comes(activity, place, now):
                continue
            if self.openings is not None and self.openings.hold_back(activity):
                continue
            if self.taken is not None and not self.taken.fits(activity):
                continue
            if self._finds_memory(activity, now):
                for other in self.flat.resources[activity]:
                    del self.waiting[other][bisect_left(self.waiting[other], place)]
                self._start(activity, now)
                return

    def _finds_memory(self, activity: int, now: int) -> bool:
        """Return whether memory suffices for an activity, and for its job, which begins then if it has not before."""
        job, presence = self.flat.job[activity], self.presence
        if presence is None or presence.begun[job]:
            return self.memory.fits(activity) and self.safety.holds(self.memory, activity)
        if not presence.admits(job, now):
            return False
        presence.begin(job)
        if self.memory.fits(activity) and self.safety.holds_beside(self.memory, activity):
            return True
        presence.take_back(job)
        return False

    def _start(self, activity: int, now: int) -> None:
        """Start an activity, and at their times those behind it that nothing else holds up."""
        pending = [(activity, now)]
        # What uses nothing need not wait for its turn: it starts together with what lets it start, and the list grows
        # meanwhile.
        for number, moment in pending:
            self.start[number] = moment
            self.order.append(number)
            self.memory.do(number)
            ends = None if self.presence is None else self.presence.do(number, moment + self.flat.duration_us[number])
            if ends is not None:
                heappush(self.events, (ends, ~0))  # To look again at what waits for memory.
            if self.openings is not None:
                self.openings.do(number)
            if self.taken is not None:
                self.taken.take(number, moment + self.flat.duration_us[number])
            for resource in self.flat.resources[number]:
                self.free[resource] = moment + self.flat.duration_us[number]
                heappush(self.events, (self.free[resource], ~resource))
            for after, length in self.successors[number]:
                self.ready[after] = max(self.ready[after], moment + length)
                self.missing[after] -= 1
                if self.missing[after] > 0:
                    continue
                if not self.flat.resources[after]:
                    pending.append((after, self.ready[after]))
                    continue
                for resource in self.flat.resources[after]:
                    self.coming[resource].add(after)
                heappush(self.events, (self.ready[after], after))

    def _better_comes(self, activity: int, place: int, now: int) -> bool:
        """Return whether an activity of better rank is known to become ready soon on its GPUs and links."""
        # Patience is in quarters, so both sides count quarters of a microsecond and remain integers.
        until = 4 * now + self.patience * self.flat.duration_us[activity]
        return any(
            self.rank[other] < place and 4 * self.ready[other] < until
            for resource in self.flat.resources[activity]
            for other in self.coming[resource]
        )


class _CapacitiesInUse:
    """What is taken of each cumulative capacity.

    `under`: by capacity, the GPUs and links of activities that take of it.
    """

    def __init__(self, flat: FlatActivities, under: Sequence[set[int]]) -> None:
        self.uses, self.left, self.under = flat.uses, list(flat.limits), under
        self.running: list[tuple[int, int]] = []

    def fits(self, activity: int) -> bool:
        """Return whether an activity may start beside what runs."""
        return all(amount <= self.left[capacity] for capacity, amount in self.uses[activity])

    def take(self, activity: int, end: int) -> None:
        """Let an activity take what it uses up to its end."""
        for capacity, amount in self.uses[activity]:
            self.left[capacity] -= amount
        if self.uses[activity]:
            heappush(self.running, (end, activity))

    def release(self, now: int) -> set[int]:
        """End what ends by now, and return the GPUs that may take something for it."""
        freed: set[int] = set()
        while self.running and self.running[0][0] <= now:
            for capacity, amount in self.uses[heappop(self.running)[1]]:
                self.left[capacity] += amount
                freed |= self.under[capacity]
        return freed


class _Openings:
    """Check of how far each GPU may go ahead.

    It counts activities that are done and have opened a memory interval, while what comes next there is not done.

    `waits`: by activity that opens a hold, the GPU, what comes next there, and how many such pairs the GPU could run,
    one behind the other, until then. `ahead`: so many times as many are allowed.
    """

    def __init__(self, flat: FlatActivities, waits: Mapping[int, tuple[int, int, float]], ahead: float) -> None:
        self.waits = waits
        # When `following` is done, all that waited for it counts no longer.
        self.behind = Counter((gpu, following) for gpu, following, _ in waits.values())
        self.gpu_of = {following: gpu for gpu, following in self.behind}
        self.count = [0] * len(flat.room)
        self.most = [0] * len(flat.room)
        for gpu, _, times in waits.values():
            # With n pairs on the way, a factor of 1 allows n and a factor of 2 allows 2 n - 1: ZB-H1 and ZB-H2 of a
            # pipeline.
            self.most[gpu] = max(self.most[gpu], round(ahead * times - (ahead - 1)), 1)

    def hold_back(self, activity: int) -> bool:
        """Return whether its GPU is as far ahead as it may be."""
        own = self.waits.get(activity)
        return own is not None and self.count[own[0]] >= self.most[own[0]]

    def do(self, activity: int) -> None:
        """Note that it is done."""
        if activity in self.waits:
            self.count[self.waits[activity][0]] += 1
        if activity in self.gpu_of:
            gpu = self.gpu_of[activity]
            self.count[gpu] -= self.behind[gpu, activity]

    def widen(self) -> None:
        """Allow one more everywhere."""
        self.most = [count + 1 for count in self.most]


def _waits(flat: FlatActivities, successors: list[list[tuple[int, int]]]) -> dict[int, tuple[int, int, float]]:
    """Return, by activity that opens memory intervals on one GPU, that GPU, what comes next there, and the way to it.

    What comes next is the first of what leads from it to the end of a hold on the GPU: the backward pass behind a
    forward one, whether that ends the hold or the gradient of the weights does.
    """
    tail, found = longest_tails(successors), dict[int, tuple[int, int, float]]()
    before: list[list[int]] = [[] for _ in flat.duration_us]
    for activity, later in enumerate(successors):
        for other, _ in later:
            if set(flat.resources[activity]) & set(flat.resources[other]):
                before[other].append(activity)
    for activity, opens in enumerate(checking_deadline(flat.opens)):
        ends = [(end, gpu) for gpu, _, end in opens if end != activity]
        if not ends or len({gpu for _, gpu in ends}) > 1:
            continue
        following, gpu = max(ends, key=lambda end: (tail[end[0]] + flat.duration_us[end[0]], end))
        # What has the longer way to the end lies before the activity.
        while earlier := [
            previous
            for previous in before[following]
            if previous != activity and tail[previous] <= tail[activity] and gpu in flat.resources[previous]
        ]:
            following = max(earlier, key=lambda previous: (tail[previous], previous))
        way = tail[activity] + flat.duration_us[activity] - tail[following]
        own = flat.duration_us[activity] + flat.duration_us[following]
        found[activity] = gpu, following, max(1.0, way / max(1, own))
    return found


class _ReserveSafety:
    """Check that the rest of the reserve can still be done behind an activity."""

    def __init__(self, flat: FlatActivities, reserves: Sequence[list[int]], presence: PresentJobs | None) -> None:
        self.flat, self.reserves, self.presence = flat, list(reserves), presence
        self.skipped = [0] * len(reserves)
        self.seen = [0] * len(flat.opens)
        self.epoch = 0
        most = [0] * len(reserves)
        for gpu, amount, _ in chain.from_iterable(flat.opens):
            most[gpu] += amount
        # Where all there is to hold fits at once, so does every part of it; in time, jobs leave less room.
        self.scarce = [held > room or bool(flat.residents) for held, room in zip(most, flat.room, strict=True)]

    def holds(self, memory: HeldMemory, activity: int) -> bool:
        """Return whether the reserve still suffices where the activity, which fits, is done now."""
        # What leaves no GPU with more than before leaves the reserve as much room as it had.
        if not memory.grows(activity):
            return True
        gpus = {gpu for gpu, _, _ in self.flat.opens[activity] if self.scarce[gpu]}
        return all(self._holds_on(gpu, memory, activity) for gpu in gpus)

    def holds_beside(self, memory: HeldMemory, activity: int) -> bool:
        """Return whether the reserve still suffices for all jobs that have begun, one of them with an activity now."""
        gpus = {gpu for gpu, _, _ in self.flat.residents[self.flat.job[activity]]}
        return all(self._holds_on(gpu, memory, activity, True) for gpu in gpus if self.reserves[gpu])

    def _holds_on(self, gpu: int, memory: HeldMemory, activity: int, to_the_end: bool = False) -> bool:
        # The banker's algorithm (Dijkstra): a step is safe if the rest can still be brought to an end in one known
        # order. `seen` marks what this walk has done by the number of the walk, so that nothing has to be reset.
        done, seen = memory.done, self.seen
        self.epoch += 1
        epoch, level = self.epoch, memory.held[gpu]
        for following in chain((activity,), self._reserve_left(gpu, memory, activity, to_the_end)):
            level += sum(
                amount
                for where, amount, end in self.flat.opens[following]
                if where == gpu and not done[end] and seen[end] != epoch
            )
            if level > memory.room[gpu]:
                return False
            seen[following] = epoch
            level -= sum(
                amount
                for where, amount, start in self.flat.closes[following]
                if where == gpu and (done[start] or seen[start] == epoch)
            )
        # Behind the activity the reserve is as it was: in either order the same is held there.
        return True

    def _reserve_left(self, gpu: int, memory: HeldMemory, activity: int, to_the_end: bool) -> Iterator[int]:
        """Yield what is left of the reserve of a GPU up to an activity, or behind it too; of jobs that have begun."""
        reserve, done, job = self.reserves[gpu], memory.done, self.flat.job
        begun = None if self.presence is None else self.presence.begun
        # What is done stays so, and is left out once walks have passed over it often enough to pay for it.
        if self.skipped[gpu] > len(reserve):
            reserve = self.reserves[gpu] = [other for other in reserve if not done[other]]
            self.skipped[gpu] = 0
        for other in reserve:
            if other == activity and not to_the_end:
                return
            if done[other]:
                self.skipped[gpu] += 1
            elif other != activity and (begun is None or begun[job[other]]):
                yield other
