"""Who is where: memory and expected load of every GPU and link, without a timetable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jigsaw_opt.problem.costs import levels_within
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.construction import level_caps
from jigsaw_opt.solvers.placement.levels import LevelPlan


class PartialPlacement:
    """A placement under construction.

    `rigid`: whether placed jobs keep their levels; else those that one more job leaves room for will do. `demands`:
    demand of each job, with the level profile that it has at present. `assignments`: spot of each job, or None.
    `gpu_us, link_us`: expected busy time over the horizon of every GPU and link. `on_gpu, on_link`: jobs on every GPU,
    with the bytes of their activations, and on every link.
    """

    def __init__(self, data: ProblemData, rigid: bool = True) -> None:
        self.data, self.rigid = data, rigid
        self.demands = list(data.demands)
        self.assignments: list[Assignment | None] = [None] * len(data.operations.jobs)
        count = len(data.layout.gpus)
        self.gpu_us = [0] * count
        self.link_us = [0] * data.layout.links
        self._state, self._in_time = [0] * count, data.layout.in_time
        self._peak = [0] * count
        self._deepest = [job.activation_bytes[-1] for job in data.operations.jobs]
        self._largest = max(self._deepest, default=0)
        self.on_gpu: list[dict[int, int]] = [{} for _ in range(count)]
        self.on_link: list[dict[int, None]] = [{} for _ in range(data.layout.links)]

    def cap(self, index: int, gpu: int) -> int:
        """Return the deepest level of one more worker of a job that the memory of a GPU admits; 0 for none."""
        job = self.data.operations.jobs[index]
        room = self.data.layout.memory[gpu] - self._state[gpu] - job.state_bytes
        if room < self._peak[gpu] and not self._in_time:
            others = [other for other, size in self.on_gpu[gpu].items() if size > room]
            if self.rigid or not self._yield(others, [gpu], job.state_bytes):
                return 0
        sizes = job.activation_bytes
        return job.levels if room >= sizes[-1] else levels_within(sizes, room)

    def _yield(self, others: Iterable[int], gpus: Sequence[int], taken: int) -> bool:
        """Return whether placed jobs find levels once so many more bytes of each of some GPUs are taken."""
        for gpu in gpus:
            self._state[gpu] += taken
        found = all(self._level_plan(other) is not None for other in others)
        for gpu in gpus:
            self._state[gpu] -= taken
        return found

    def _level_plan(self, index: int) -> LevelPlan | None:
        """Return levels of a placed job as memory is now, None where there are none."""
        assignment = self.placed(index)
        caps = level_caps(self.data.layout, assignment.demand, assignment.gpus, self._state)
        return self.data.levels(assignment.demand, caps)

    def assignment(self, index: int, gpus: Sequence[int], caps: Sequence[int] = ()) -> Assignment | None:
        """Return a job on GPUs as memory is now; None where their types, memory or routes do not admit it.

        `caps`: what `cap` returns for the GPUs; empty where it was not asked.
        """
        demand, type_of = self.demands[index], self.data.layout.type_of
        times = demand.slot_us
        if not all(type_of[gpu] in times for gpu in gpus):
            return None
        assignment = self.data.assignment(index, demand, gpus, caps or [self.cap(index, gpu) for gpu in gpus])
        if assignment is None or self.rigid or self._in_time:
            return assignment
        # A job that yields on each of these GPUs may not do so on all of them.
        taken, memory, state, deepest = demand.job.state_bytes, self.data.layout.memory, self._state, self._deepest
        room = {gpu: memory[gpu] - state[gpu] - taken for gpu in gpus}
        if min(room.values()) >= self._largest:
            return assignment
        others = {other for gpu in gpus for other in self.on_gpu[gpu] if deepest[other] > room[gpu]}
        return assignment if not others or self._yield(others, gpus, taken) else None

    def admits(self, index: int, assignment: Assignment) -> bool:
        """Return whether memory as it is now admits a job at an assignment with its levels as they are."""
        deepest = [max(column) for column in zip(*assignment.plan.rows, strict=True)]
        return all(self.cap(index, gpu) >= level for gpu, level in zip(assignment.gpus, deepest, strict=True))

    def place(self, index: int, assignment: Assignment, deepest: Sequence[int]) -> None:
        """Put a job on its assignment."""
        self.assignments[index] = assignment
        self.demands[index] = assignment.demand
        job = self.data.operations.jobs[index]
        for gpu, level in zip(assignment.gpus, deepest, strict=True):
            self._state[gpu] += 0 if self._in_time else job.state_bytes
            self.on_gpu[gpu][index] = size = job.activation_bytes[level - 1]
            self._peak[gpu] = max(self._peak[gpu], size)
        self._weigh(index, assignment, 1)

    def placed(self, index: int) -> Assignment:
        """Return the assignment of a placed job."""
        assignment = self.assignments[index]
        if assignment is None:
            raise ValueError(f"job {index} is not placed")
        return assignment

    def unplace(self, index: int) -> None:
        """Take a placed job away."""
        assignment = self.placed(index)
        self.assignments[index] = None
        size = 0 if self._in_time else self.data.operations.jobs[index].state_bytes
        for gpu in assignment.gpus:
            self._state[gpu] -= size
            if self.on_gpu[gpu].pop(index) == self._peak[gpu]:
                self._peak[gpu] = max(self.on_gpu[gpu].values(), default=0)
        self._weigh(index, assignment, -1)

    def clear(self) -> None:
        """Take all placed jobs away."""
        for index, assignment in enumerate(self.assignments):
            if assignment is not None:
                self.unplace(index)

    def resolved(self) -> list[Assignment] | None:
        """Return all jobs with levels that memory admits now that all are placed; None where one finds none."""
        room = [memory - state for memory, state in zip(self.data.layout.memory, self._state, strict=True)]
        resolved = []
        for index, assignment in enumerate(self.assignments):
            if assignment is None:
                return None
            tight = min(map(room.__getitem__, assignment.gpus)) < assignment.job.activation_bytes[-1]
            if tight or assignment.caps is not None:
                caps = level_caps(self.data.layout, assignment.demand, assignment.gpus, self._state)
                anew = self.data.assignment(index, assignment.demand, assignment.gpus, caps)
                if anew is None:
                    return None
                resolved.append(anew)
            else:
                resolved.append(assignment)
        return resolved

    def _weigh(self, index: int, assignment: Assignment, sign: int) -> None:
        times = sign * assignment.job.iterations
        for gpu, slot_us in zip(assignment.gpus, assignment.slot_us, strict=True):
            self.gpu_us[gpu] += times * slot_us
        if assignment.links:
            exchange = sign * sum(map(sum, assignment.exchange))
            for link in assignment.links:
                self.link_us[link] += exchange
                if sign > 0:
                    self.on_link[link][index] = None
                else:
                    del self.on_link[link][index]


def fullest_us(assignments: Sequence[Assignment]) -> int:
    """Return the load of the fullest GPU or link, or the length of the longest job, in microseconds.

    No order of operations beats that by much.
    """
    gpus: dict[int, int] = {}
    links: dict[int, int] = {}
    longest = 1
    for assignment in assignments:
        longest = max(longest, assignment.iteration_us * assignment.job.iterations)
        for gpu, slot_us in zip(assignment.gpus, assignment.slot_us, strict=True):
            gpus[gpu] = gpus.get(gpu, 0) + slot_us * assignment.job.iterations
        exchange = sum(map(sum, assignment.exchange))
        for link in assignment.links:
            links[link] = links.get(link, 0) + exchange
    return max(longest, *gpus.values(), *links.values())
