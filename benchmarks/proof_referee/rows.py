"""Rows of a plan: variables with their least and largest values, and linear rows that every good plan keeps."""

from __future__ import annotations

from itertools import combinations, pairwise, product

from .common import Document, need
from .facts import JobFacts
from .rows_of_task_graphs import GraphRows
from .rows_of_workers import JobRows
from .table import Gpu, Name, Operation, Table, Term
from .task_graphs import Graph


class Rows(Table):
    """The variables and rows of an instance and a limit."""

    def __init__(self, instance: Document, limit: int, each: bool) -> None:
        super().__init__(instance, limit, each)
        stay = [job for job in instance["jobs"] if "restart_us" not in job]
        facts = [JobFacts(instance, job) if "model" in job else Graph(instance, job) for job in stay]
        of_workers = [job for job in facts if isinstance(job, JobFacts) and job.known_rule]
        size = sum((job.n if each else 1) * job.w * (job.D + 1) for job in of_workers)
        need(size <= 60000, "there are more than 60000 rows at least")
        self.jobs: list[JobRows | GraphRows] = []
        for job in facts:
            if isinstance(job, Graph):
                of_graph = GraphRows(self, len(self.jobs), job)
                if of_graph.has_rows:
                    of_graph.add()
                    self.jobs.append(of_graph)
            elif job.known:
                self.jobs.append(JobRows(self, len(self.jobs), job))
        if instance["objective"] == "weighted_completion":
            self.most([(job.job["weight"], job.end) for job in self.jobs], limit)
        else:
            self._loads()
            self._links()
        for resource, operations in self.resources.items():
            for one, other in combinations(operations, 2):
                if one.job != other.job or (self.jobs[one.job].ordered and not resource.startswith("gpu ")):
                    self._order(one, other)
        self._earlier_orders()
        self._gpus_alike()
        if self.cyclic:
            self._memory()
        else:
            self._one_job_at_a_time()
        self._licences(instance["jobs"])

    def _loads(self) -> None:
        for gpu in self.gpus:
            jobs = [job for job in self.jobs if gpu in job.allowed]
            if jobs:
                heads, tails = {job.head for job in jobs}, {job.tail for job in jobs}
                load = ("load", gpu.name)
                self.values[load] = (0, self.limit - min(heads) - min(tails))
                work = [(job, term) for job in jobs for term in job.work_on(gpu)]
                self.equal([(-1, load), *(term for _, term in work)], 0)
                for head, tail in product(sorted(heads), sorted(tails)):
                    if any(job.head >= head and job.tail >= tail for job in jobs):
                        those = [term for job, term in work if job.head >= head and job.tail >= tail]
                        self.most(those, self.limit - head - tail)
        loads = [(-1, name) for name in self.values if name[0] == "load"]
        self.most(loads, -sum(job.least_work for job in self.jobs))

    def _links(self) -> None:
        for link in (link["name"] for link in self.cluster["links"]):
            jobs = [job for job in self.jobs if link in job.links]
            for head in sorted({job.link_head for job in jobs}):
                those = [term for job in jobs if job.link_head >= head for term in job.work_on_link(link)]
                self.most(those, self.limit - head)

    def _order(self, one: Operation, other: Operation) -> None:
        T, jobs = self.limit, (self.jobs[one.job], self.jobs[other.job])
        order = ("order", jobs[0].name, one.iteration, one.part, jobs[1].name, other.iteration, other.part)
        if one.job == other.job:
            self.values[order] = jobs[0].order(one, other)
        elif self.cyclic:
            turns = sum(job.turns for job in jobs)
            self.values[order] = (-turns, turns) if any(job.ordered for job in jobs) else (-1, 2)
        else:
            self.values[order] = (0, 1)
        first, second = [(1, one.done), (-1, other.start)], [(1, other.done), (-1, one.start)]
        if self.cyclic:
            both = [(4 * T, one.present), (4 * T, other.present)]
            self.most([*first, (-T, order), *both], 8 * T)
            self.most([*second, (T, order), *both], 9 * T)
        else:
            both = [(T, one.present), (T, other.present)]
            self.most([*first, (T, order), *both], 3 * T)
            self.most([*second, (-T, order), *both], 2 * T)

    def _earlier_orders(self) -> None:
        sign = -1 if self.cyclic else 1
        for order in [name for name in self.values if name[0] == "order"]:
            _, one, i, x, other, k, y = order
            for later in (("order", one, i, x, other, k + 1, y), ("order", one, i - 1, x, other, k, y)):
                if later in self.values:
                    self.most([(sign, order), (-sign, later)], 0)

    def _gpus_alike(self) -> None:
        for pair in pairwise(self.gpus):
            if pair[0].server is pair[1].server:
                terms: list[Term] = []
                power = 1
                for one, other in zip(*(reversed(self._digits(gpu)) for gpu in pair)):
                    terms += [(-power, one), (power, other)]
                    power *= 1 + self.values[one][1]
                if terms:
                    self.most(terms, 0)

    def _digits(self, gpu: Gpu) -> list[Name]:
        jobs = [job for job in self.jobs if gpu in job.allowed]
        return [name for job in jobs for name in job.ons(gpu)] + [name for job in jobs for name in job.levels(gpu)]

    def _memory(self) -> None:
        for number, gpu in enumerate(self.gpus):
            most, size = ("activations", number), gpu.server["gpu_memory"]
            self.values[most] = (0, size)
            jobs = [job for job in self.jobs if gpu in job.allowed]
            needed, large = [(1, most), *(term for job in jobs for term in job.states(gpu))], self.largest_memory
            self.most(needed, size)
            for job in jobs:
                for slot, peak in job.peaks.items():
                    on = job.of("on", slot, gpu.name)
                    if on in self.values:
                        self.most([*needed, (1, peak), (large, on)], size + large)
            for job in jobs:
                for terms in job.activations(gpu):
                    self.most([*terms, (-job.times, most)], 0)

    def _one_job_at_a_time(self) -> None:
        T = self.limit
        for one, other in combinations([job for job in self.jobs if job.takes_time], 2):
            order, activations = ("order", one.name, other.name), max(one.least_activations, other.least_activations)
            for gpu in one.allowed:
                states = product(one.states(gpu), other.states(gpu)) if gpu in other.allowed else ()
                for (state, u), (other_state, v) in states:
                    if state + other_state + activations > gpu.server["gpu_memory"]:
                        self.values[order] = (0, 1)
                        both = [(T, u), (T, v)]
                        self.most([(1, one.end), (-1, other.begin), (T, order), *both], 3 * T)
                        self.most([(1, other.end), (-1, one.begin), (-T, order), *both], 2 * T)

    def _licences(self, jobs: list[Document]) -> None:
        for licence, count in self.cluster.get("licences", {}).items():
            holders = sum(licence in job.get("licences", []) for job in jobs)
            self.most([], count - (holders if self.cyclic else min(holders, 1)))
