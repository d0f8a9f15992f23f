"""Memory in time: a job takes memory from its first activity to its last one (specification: memory, licences).

Whatever else a job holds meanwhile is one more capacity behind the GPUs, with units in place of bytes.

`PresentJobs` admits jobs while a schedule is made from its begin to its end. `flattened` states the memory of a
schedule as waits between jobs, for whatever changes the order of its activities.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities, flatten
from jigsaw_opt.solvers.activities.held_memory import HeldMemory


class PresentJobs:
    """Jobs that are present at the moment that a schedule has come to.

    `memory`: what is held. Its room is kept to what present jobs leave of each GPU. `begun`: by job, whether it has
    begun.
    """

    def __init__(self, flat: FlatActivities, memory: HeldMemory) -> None:
        self.flat, self.memory = flat, memory
        memory.room = list(flat.room)
        self.begun = bytearray(len(flat.residents))
        self._left, self._end = [0] * len(flat.residents), [0] * len(flat.residents)
        for job in flat.job:
            self._left[job] += 1
        self._bytes = [0] * len(flat.room)
        self._activations: list[list[int]] = [[] for _ in flat.room]
        self._endings: list[tuple[int, int]] = []
        # `HeldMemory` gives memory back where the last activity of an interval starts, but others come before its end.
        self._closing: list[list[tuple[int, int]]] = [[] for _ in flat.room]

    def admits(self, job: int, now: int) -> bool:
        """Return whether a job that has not begun finds the memory of its GPUs now."""
        for gpu, size, activations in self.flat.residents[job]:
            most = max(activations, self._activations[gpu][-1] if self._activations[gpu] else 0)
            closing = sum(amount for end, amount in self._closing[gpu] if end > now)
            if self._bytes[gpu] + size + most + self.memory.held[gpu] + closing > self.flat.room[gpu]:
                return False
        return True

    def begin(self, job: int) -> None:
        """Let a job take its memory."""
        self.begun[job] = 1
        for gpu, size, activations in self.flat.residents[job]:
            self._bytes[gpu] += size
            insort(self._activations[gpu], activations)
            self._set_room(gpu)

    def leave(self, job: int) -> None:
        """Let a job give its memory back."""
        for gpu, size, activations in self.flat.residents[job]:
            self._bytes[gpu] -= size
            self._activations[gpu].remove(activations)
            self._set_room(gpu)

    def take_back(self, job: int) -> None:
        """Undo the begin of a job, of which nothing has been done."""
        self.begun[job] = 0
        self.leave(job)

    def do(self, activity: int, end: int) -> int | None:
        """Note that an activity of a begun job is done, and return when the job ends if that was its last one."""
        job = self.flat.job[activity]
        for gpu, amount, start in self.flat.closes[activity]:
            if self.memory.done[start]:
                self._closing[gpu].append((end, amount))
        self._left[job] -= 1
        self._end[job] = max(self._end[job], end)
        if self._left[job]:
            return None
        heappush(self._endings, (self._end[job], job))
        return self._end[job]

    def release(self, now: int) -> bool:
        """Let jobs leave that have ended by now; return whether there are any."""
        any_left = False
        while self._endings and self._endings[0][0] <= now:
            self.leave(heappop(self._endings)[1])
            any_left = True
        for gpu, closing in enumerate(self._closing):
            if closing and closing[0][0] <= now:
                self._closing[gpu] = [(end, amount) for end, amount in closing if end > now]
        return any_left

    def _set_room(self, gpu: int) -> None:
        most = self._activations[gpu][-1] if self._activations[gpu] else 0
        self.memory.room[gpu] = self.flat.room[gpu] - self._bytes[gpu] - most


def spans(flat: FlatActivities, starts: Sequence[int]) -> list[tuple[int, int]]:
    """Return begin and end of each job, in microseconds."""
    found: dict[int, tuple[int, int]] = {}
    for job, start, length in zip(flat.job, starts, flat.duration_us, strict=True):
        begin, end = found.get(job, (start, start))
        found[job] = min(begin, start), max(end, start + length)
    return [found[job] for job in range(len(found))]


def most_present(flat: FlatActivities, starts: Sequence[int]) -> list[int]:
    """Return the most bytes of present jobs on each GPU at one time, without memory intervals."""
    most, own = [0] * len(flat.room), spans(flat, starts)
    for gpu, jobs in enumerate(_jobs_on(flat)):
        # The most is reached where some job begins.
        for begin in {own[job][0] for job, _, _ in jobs}:
            present = [(size, act) for job, size, act in jobs if own[job][0] <= begin < own[job][1]]
            now = sum(size for size, _ in present) + max((act for _, act in present), default=0)
            most[gpu] = max(most[gpu], now)
    return most


def flattened(network: ActivityNetwork, starts: Sequence[int], scarce: bool) -> FlatActivities | None:
    """Return the activities of a schedule in such a way that all jobs may be present all the time.

    Where memory does not hold them at once, jobs wait for one another as in `job_orders`.

    None where memory intervals do not fit beside the most that present jobs ever take.

    `starts`: by activity, in microseconds, of a schedule that keeps memory.
    """
    flat = flatten(network)
    if not scarce or (not network.held and _is_held(flat, starts)):
        return flat
    flat = flatten(network, in_time=True)
    room = [memory - most for memory, most in zip(flat.room, most_present(flat, starts), strict=True)]
    gpus = len(room) - len(network.held)
    found = ordered(flat, job_orders(flat, starts))._replace(room=room[:gpus], residents=())
    return found if _is_held(found, starts) else None


def job_orders(flat: FlatActivities, starts: Sequence[int], without: Collection[int] = ()) -> list[tuple[int, int]]:
    """Return pairs of jobs, the second of which waits for the end of the first, such that memory is kept.

    On each GPU that cannot hold all its jobs at once, a job waits for those that have ended before it begins. In any
    schedule that keeps these waits, jobs that are present together were pairwise present together in the given one.
    Intervals that overlap pairwise have a moment in common (Helly), so memory held them all.
    """
    return sorted(set(_following(flat, spans(flat, starts), without)))


def ordered(flat: FlatActivities, pairs: Iterable[tuple[int, int]]) -> FlatActivities:
    """Return the activities with waits between jobs.

    `pairs`: pairs of jobs, the second of which waits for the end of the first.
    """
    first, last = _ends_of_jobs(flat)
    arcs = [Arc(a, b, flat.duration_us[a], 0) for before, after in pairs for a in last[before] for b in first[after]]
    return flat._replace(arcs=[*flat.arcs, *arcs])


def in_memory_order(
    flat: FlatActivities, lengths: Sequence[int], starts: Sequence[int], without: Collection[int]
) -> FlatActivities:
    """Return activities with waits such that memory is kept at any starts in the order of a schedule.

    Jobs wait as in `job_orders`. Besides, a job waits for what another one held on its GPUs and gave back before it
    began, and what is held after the job has ended waits for that: then whatever is held together was so before.

    `lengths, starts`: of the activities in that schedule, in microseconds. `without`: jobs that are left out.
    """
    old = flat._replace(duration_us=[*lengths])
    found = ordered(flat, job_orders(old, starts, without))
    own, jobs, (first, last) = spans(old, starts), _jobs_on(old), _ends_of_jobs(flat)
    before, behind = dict[tuple[int, int, int], int](), dict[tuple[int, int, int], int]()
    for start, opens in enumerate(old.opens):
        for gpu, _, end in opens:
            for job, _, _ in jobs[gpu]:
                # Blocks of a GPU keep their order, so the last one that gives back stands for those before it.
                pair = gpu, old.job[start], job
                if own[job][0] >= starts[end] + old.duration_us[end]:
                    before[pair] = max(before.get(pair, end), end, key=starts.__getitem__)
                elif own[job][1] <= starts[start]:
                    behind[pair] = min(behind.get(pair, start), start, key=starts.__getitem__)
    left = {*without}
    arcs = [
        Arc(end, after, flat.duration_us[end], 0)
        for (_, holder, job), end in before.items()
        if not left & {holder, job}
        for after in first[job]
    ]
    arcs += [
        Arc(one, start, flat.duration_us[one], 0)
        for (_, holder, job), start in behind.items()
        if not left & {holder, job}
        for one in last[job]
    ]
    return found._replace(arcs=[*found.arcs, *arcs])


def _jobs_on(flat: FlatActivities) -> list[list[tuple[int, int, int]]]:
    """Return, by GPU, the jobs there with their bytes and activations."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in flat.room]
    for job, residents in enumerate(flat.residents):
        for gpu, size, activations in residents:
            found[gpu].append((job, size, activations))
    return found


def _following(
    flat: FlatActivities, own: Sequence[tuple[int, int]], without: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of jobs, the first of which ends before the second begins, on GPUs too small for all their jobs.

    Pairs that follow from others by way of a third job on the same GPU are left out.
    """
    held = Counter[int]()
    for opens in flat.opens:
        for gpu, amount, _ in opens:
            held[gpu] += amount
    for gpu, everybody in enumerate(_jobs_on(flat)):
        jobs = [entry for entry in everybody if entry[0] not in without]
        most = sum(size for _, size, _ in jobs) + max((act for _, _, act in jobs), default=0)
        if most + held[gpu] <= flat.room[gpu]:
            continue
        for job, _, _ in jobs:
            before = [other for other, _, _ in jobs if own[other][1] <= own[job][0] and other != job]
            latest = max((own[other][0] for other in before), default=0)
            yield from ((other, job) for other in before if own[other][1] > latest)


def _ends_of_jobs(flat: FlatActivities) -> tuple[list[list[int]], list[list[int]]]:
    """Return, by job, the activities one of which comes first, and those one of which ends last."""
    has_before, has_after = bytearray(len(flat.job)), bytearray(len(flat.job))
    for before, after, length, periods in flat.arcs:
        if periods == 0:
            has_before[after] = 1
            has_after[before] |= length >= flat.duration_us[before]
    first: list[list[int]] = [[] for _ in range(1 + max(flat.job))]
    last: list[list[int]] = [[] for _ in first]
    for activity, job in enumerate(flat.job):
        if not has_before[activity]:
            first[job].append(activity)
        if not has_after[activity]:
            last[job].append(activity)
    return first, last


def _is_held(flat: FlatActivities, starts: Sequence[int]) -> bool:
    """Return whether memory intervals fit on each GPU in the order of the starts."""
    memory = HeldMemory(flat)
    if any(room < 0 for room in flat.room):
        return False
    for activity in sorted(range(len(starts)), key=lambda a: (starts[a], starts[a] + flat.duration_us[a], a)):
        if not memory.fits(activity):
            return False
        memory.do(activity)
    return True
