"""The client: each poll compares what Slurm tells with what the scheduler believes, and makes the two agree.

Slurm is the truth. What differs becomes events; what the scheduler decides becomes commands, where the client acts. As
nothing but this comparison counts, a client that was killed goes on from the next poll. Of its own log it reads only
which jobs it has released, and of which it has not seen the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import ServerBack, ServerCordoned, ServerLost
from jigsaw_opt.scheduling.live.plan_change import PlanChange
from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.belief import Belief
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.commands import Command, Runner, SlurmError
from jigsaw_opt.serving.slurm.log import ClientLog, open_jobs, released_jobs
from jigsaw_opt.serving.slurm.plain import AnySlurm
from jigsaw_opt.serving.slurm.reading import SlurmJob, SlurmNode, read_ended, read_jobs, read_nodes
from jigsaw_opt.serving.slurm.scheduler import SchedulerBackend, ServiceError

DEFAULT_POLICY = "backfill:kind=conservative:reserve=servers:placement=consolidated"
"""The simulation's name for what Slurm does by itself."""
_MOST_FAILURES = 3
"""A job whose start fails so often is given back to Slurm."""
_MOST_PREDICTIONS = 3
"""So many new jobs are predicted at most at a poll, as each takes time."""
_FEWEST_PAST = 20
_MOST_PAST = 500
_MOST_ASKED = 1000
"""So many jobs are asked of the accounting at once, as a command must not be too long."""
_MOST_TOLD = 5
_ALIVE_US = 30_000_000


@dataclass(frozen=True, slots=True)
class ClientSetting:
    """What a client does, and with which jobs.

    `act`: whether it releases held jobs; else it only logs what it would do. `partition, comment`: only jobs of this
    partition, and with these words in their comment; empty for all. `preempt`: whether jobs that may be requeued are
    stopped where the policy stops them. `patience_us`: a released job that does not run after so long is held again.
    `policy`: who decides, for the report.
    """

    act: bool = False
    partition: str = ""
    comment: str = ""
    preempt: bool = False
    patience_us: int = 120_000_000
    policy: str = DEFAULT_POLICY

    def takes(self, job: SlurmJob) -> bool:
        """Return whether a job is one of those that the client is for."""
        return (not self.partition or job.partition == self.partition) and self.comment in job.comment


class SlurmClient:
    """Keeps a scheduler informed of a Slurm cluster, and carries out its decisions on held jobs.

    `run`: runs commands of Slurm. `log`: takes what is seen, decided and done; it is open. `connect`: returns the
    scheduler for a cluster. `clock`: returns the time in microseconds since 1970.
    """

    def __init__(
        self,
        run: Runner,
        log: ClientLog,
        connect: Callable[[Cluster], SchedulerBackend],
        setting: ClientSetting,
        clock: Callable[[], int],
    ) -> None:
        self._run, self._setting, self._clock, self._connect, self._log = AnySlurm(run), setting, clock, connect, log
        self._released = released_jobs(log.path)
        self._open = open_jobs(log.path)
        """The jobs of the log of whose end it does not tell yet."""
        self._since: dict[str, int] = {}
        """When a job was released, of those that do not run yet."""
        self._requeued: dict[str, int] = {}
        """When a job was stopped, of those that still hold their nodes."""
        self._failures: Counter[str] = Counter()
        self._ended: list[TraceJob] = []
        self._alive_us = clock()
        self._begin(self._nodes(), self._alive_us)

    def _begin(self, nodes: Sequence[SlurmNode], now_us: int) -> None:
        """Begin with a scheduler for these nodes, from what it knows: a new one is still to be told everything."""
        self._cluster = SlurmCluster(nodes)
        self._gres = {node.name: node.gres for node in nodes if node.name in self._cluster.nodes}
        self._scheduler = self._connect(self._cluster.cluster)
        self._belief = Belief(self._cluster, self._scheduler, self._log)
        self._belief.now_us, self._is_stale, out = now_us, False, self._belief.known.servers
        self._states = {node: out.get(self._cluster.servers_of(node)[0], "up") for node in self._gres}
        for name, gpus in self._belief.at.items():
            self._open.setdefault(name, SlurmJob(name, "runs", "", 0))
            if gpus:
                self._since.setdefault(name, now_us)  # another client may have released it a moment ago
        self._truth: Mapping[str, SlurmJob] = {}
        self._unpredicted: list[str] = []
        without = len(nodes) - len(self._gres)
        self._belief.write("begin", **asdict(self._setting), nodes=self._gres, nodes_without_gpus=without)

    def _nodes(self) -> list[SlurmNode]:
        self._wrong_nodes: dict[str, str] = {}
        return read_nodes(self._run(commands.NODES), self._wrong_nodes)

    def poll(self) -> bool:
        """Look once, tell the scheduler, and act or log; return whether Slurm and the scheduler answered."""
        belief = self._belief
        belief.now_us = max(belief.now_us, self._clock())
        if belief.now_us - self._alive_us >= _ALIVE_US:
            self._alive_us = belief.now_us
            belief.write("alive")
        try:
            self._wrong_jobs: dict[str, str] = {}
            nodes, jobs = self._nodes(), read_jobs(self._run(commands.JOBS), belief.now_us, self._wrong_jobs)
        except SlurmError as error:
            belief.say("slurm", f"Slurm does not answer: {error}")
            return False
        wrong = [f"{name}: {why}" for name, why in sorted((self._wrong_nodes | self._wrong_jobs).items())]
        told = f", but {len(wrong)} nodes or jobs are left out: {'; '.join(wrong[:_MOST_TOLD])}" if wrong else ""
        belief.say("slurm", f"Slurm answers{told}")
        belief.now_us = max(belief.now_us, self._clock())
        try:
            self._take_in(nodes, jobs)
        except ServiceError as error:
            # Whether its last request counted is not known, so the next look begins with what it then says.
            self._is_stale = True
            belief.say("service", f"the service does not answer: {error}")
            return False
        return True

    def _take_in(self, nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob]) -> None:
        """Tell the scheduler what Slurm tells, and act or log."""
        if self._is_stale or any(one.gres and one.gres != self._gres.get(one.name) for one in nodes):
            self._begin(nodes, self._belief.now_us)
        before, self._truth = self._truth, {job.name: job for job in jobs}
        self._watch(nodes)
        self._compare(before)
        self._predict()
        for change in self._scheduler.step(self._belief.now_us):
            self._take(change)
        if self._setting.act:
            for job in self._truth.values():
                self._carry_out(job)

    # What Slurm tells ---------------------------------------------------------------------------------------

    def _watch(self, nodes: Sequence[SlurmNode]) -> None:
        """Tell of nodes that have failed, closed or come back."""
        belief, found = self._belief, {node.name: node.state for node in nodes}
        for node, before in self._states.items():
            now = found.get(node, "down")
            if now == before:
                continue
            belief.write("node", node=node, state=now)
            self._states[node] = now
            for server in self._cluster.servers_of(node):
                if before != "up":
                    belief.tell(node, ServerBack(belief.now_us, server))
                if now != "up":
                    belief.tell(node, (ServerLost if now == "down" else ServerCordoned)(belief.now_us, server))
            for job, gpus in belief.at.items():
                if now == "down" and node in self._cluster.nodes_of(gpus):
                    belief.at[job] = ()  # the scheduler knows by itself that they wait

    def _compare(self, before: Mapping[str, SlurmJob]) -> None:
        """Tell of every job that is otherwise than the scheduler believes."""
        belief, left = self._belief, Counter[str]()
        known = {*self._truth, *self._wrong_jobs}  # of a job whose record cannot be read nobody says that it ended
        gone = self._gone([job for name, job in self._open.items() if known.isdisjoint((name, name.partition("_")[0]))])
        for job in [*gone, *(one for one in self._truth.values() if one.state == "ended" and one.name in self._open)]:
            self._end(job)
        misplaced: list[SlurmJob] = []
        for job in self._truth.values():
            if job.state == "waits":
                self._wait(job, before.get(job.name), left)
            elif job.state == "runs" and not job.gpus:
                left["jobs without a GPU run"] += 1
            elif job.state == "runs" and not self._is_leaving(job):
                self._note_running(job, before.get(job.name))
                misplaced += [] if belief.is_as(job) else [job]
        with belief.together():
            for job in misplaced:
                belief.take_off(job.name)
            for job in misplaced:
                self._adopt(job, left)
        belief.say("left out", "; ".join(f"{why}: {count}" for why, count in sorted(left.items())) or "nothing")

    def _gone(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """Return jobs that Slurm has forgotten since their end, with how they ended where the accounting says it."""
        told = ""
        try:
            for first in range(0, len(jobs), _MOST_ASKED):
                told += self._run(commands.accounting(job.name for job in jobs[first : first + _MOST_ASKED]))
        except SlurmError as error:
            self._belief.say("accounting", str(error))
        return read_ended(told, jobs)

    def _end(self, job: SlurmJob) -> None:
        self._belief.finish(job.name)
        self._open.pop(job.name, None)
        for kept in (self._since, self._requeued, self._failures):
            kept.pop(job.name, None)
        self._released.discard(job.name)
        self._belief.write("ended", job=job.name, state=job.told, start_us=job.start_us, end_us=job.end_us)
        if job.start_us and job.end_us and job.end_us >= job.start_us:
            made = TraceJob.lasting(job.name, job.submit_us, job.gpus, job.end_us - job.start_us)
            self._ended = [*self._ended[1 - _MOST_PAST :], made]

    def _note_running(self, job: SlurmJob, before: SlurmJob | None) -> None:
        """Log that a job runs, once for each start."""
        if before is None or before.start_us != job.start_us:
            times = {"submit_us": job.submit_us, "start_us": job.start_us}
            facts = {"gpus": job.gpus, "types": job.types, "limit_us": job.limit_us}
            self._belief.write("running", job=job.name, nodes=job.nodes, **facts, **times)
            self._open[job.name] = job
            self._failures.pop(job.name, None)
            self._since.pop(job.name, None)

    def _adopt(self, job: SlurmJob, left: Counter[str]) -> None:
        """Tell where a job runs; jobs that are only believed to be there make room."""
        belief, where = self._belief, self._cluster.where(job)
        if self._is_out(where):
            left["jobs run on nodes that are down or not known"] += 1
            return
        gpus = self._cluster.gpus_for(job, where, belief.taken(job.name), ())
        if gpus is None:
            for name, own in belief.at.items():
                if where.keys() & self._cluster.nodes_of(own).keys() and not self._runs(name):
                    belief.take_off(name)
            gpus = self._cluster.gpus_for(job, where, belief.taken(job.name), ())
        if gpus is None:
            left["jobs run on more GPUs than their nodes have free"] += 1
        else:
            belief.put(job, gpus, min(job.start_us or belief.now_us, belief.now_us))

    def _is_out(self, nodes: Iterable[str]) -> bool:
        return any(self._states.get(node, "down") == "down" for node in nodes)

    def _runs(self, job: str) -> bool:
        return job in self._truth and self._truth[job].state == "runs"

    def _wait(self, job: SlurmJob, before: SlurmJob | None, left: Counter[str]) -> None:
        """Tell of a job that waits, and hold one again that was released in vain."""
        name, act, belief = job.name, self._setting.act, self._belief
        if why := self._reason_against(job):
            left[why] += 1
            belief.finish(name)
            return
        if act and job.held and job.wanted and name not in self._released:
            self._give_back(job, "it names nodes of its own")
            return
        if name not in belief.at:
            if not belief.submit(job):
                if act:
                    self._give_back(job, "the scheduler refuses it")
                return
            self._unpredicted.append(name)
            belief.write("job", job=name, gpus=job.gpus, submit_us=job.submit_us, limit_us=job.limit_us)
            self._open[name] = job
        elif before is not None and before.state == "runs" and name not in self._requeued:
            belief.take_off(name)
        belief.hold(name, not job.ready)
        if not job.ready:
            left["jobs wait for a dependency or a time"] += 1
        if job.held:
            self._requeued.pop(name, None)
        elif act:
            late = belief.now_us - self._since.get(name, 0) >= self._setting.patience_us
            if late or not belief.at[name] or any(self._states.get(node) != "up" for node in job.wanted):
                told = self._call(commands.hold(name))
                if belief.at[name]:
                    self._fail(job, told or ("it did not start in time" if late else "its nodes are out of use"))

    def _reason_against(self, job: SlurmJob) -> str:
        """Return why a job that waits is not the scheduler's; empty if it is."""
        if not job.gpus:
            return "jobs without a GPU wait"
        if job.strange:
            return f"jobs wait, left to Slurm as {job.strange}"
        if not self._setting.takes(job):
            return "jobs wait in other partitions or without the comment"
        if self._setting.act and not job.held and job.name not in self._released:
            return "jobs wait that are not held, left to Slurm"
        return "jobs are held" if job.held and not self._setting.act else ""

    def _predict(self) -> None:
        """Predict the start of jobs that are new, if they wait still."""
        new = [name for name in self._unpredicted if self._belief.at.get(name) == ()]
        self._unpredicted, kept = new[_MOST_PREDICTIONS:], list[str]()
        past = self._ended if len(self._ended) >= _FEWEST_PAST else []
        for name in new[:_MOST_PREDICTIONS]:
            try:
                ordered = sorted(past, key=lambda job: job.submit_us)
                low_us, middle_us, high_us = self._scheduler.expected_start(name, ordered)
            except JigsawError as error:
                self._belief.say(f"prediction of {name}", str(error))
                kept.append(name)  # as long as its array, or something that it waits for, keeps it from the policy
                continue
            self._belief.write("predicted", job=name, low_us=low_us, middle_us=middle_us, high_us=high_us)
        self._unpredicted += kept

    # What the scheduler decides -----------------------------------------------------------------------------

    def _take(self, change: PlanChange) -> None:
        """Log what a step changes, and believe it where the client acts."""
        belief = self._belief
        if change.failure:
            belief.say("policy", change.failure)
        plans: list[tuple[str, str, tuple[str, ...], str]] = []
        plans += [("stop", one.job, (), one.reason) for one in change.stops]
        plans += [("move", one.to.job, one.to.gpus, one.reason) for one in change.moves if one.restarts]
        plans += [("start", one.to.job, one.to.gpus, one.reason) for one in change.starts]
        shared = {one.job for one in (*(o.to for o in change.starts), *(o.to for o in change.moves)) if one.partners}
        for kind, job, gpus, reason in plans:
            if job not in belief.at:
                continue
            nodes = sorted(self._cluster.nodes_of(gpus))
            facts = {"action": kind, "job": job, "nodes": nodes, "reason": reason}
            belief.say(f"plan of {job}", f"{kind} {','.join(nodes)}", "plan", **facts)
            if self._setting.act:
                belief.at[job] = gpus
                self._since.pop(job, None)
                if job in shared:
                    belief.take_off(job, "Slurm shares no GPUs between jobs")

    def _carry_out(self, job: SlurmJob) -> None:
        """Bring a job to where the scheduler believes it to be."""
        gpus = self._belief.at.get(job.name)
        if gpus is None or self._is_leaving(job):
            return
        if gpus and job.state == "waits" and job.held:
            self._start(job, gpus)
        elif job.state == "runs" and not self._belief.is_as(job) and not self._is_out(job.nodes):
            self._stop(job)

    def _start(self, job: SlurmJob, gpus: tuple[str, ...]) -> None:
        belief, name = self._belief, job.name
        closed = {node for node, state in self._states.items() if state != "up"}
        found = self._cluster.fitted(job, gpus, belief.taken(name), closed)
        if found is None:
            # Told as no failed start: the scheduler would put the job aside after three, and it fits once others end.
            belief.say(name, f"it waits: no {job.least_nodes} nodes have the GPUs that it asks of each")
            belief.take_off(name)
            return
        if found != gpus:
            with belief.together():
                belief.put(job, found, belief.now_us)
        if belief.at.get(name) == found:
            self._released.add(name)
            nodes = sorted(self._cluster.nodes_of(found))
            told = self._call(commands.place(name, nodes)) or self._call(commands.release(name))
            if told:
                self._fail(job, told)
            else:
                self._since[name] = belief.now_us

    def _stop(self, job: SlurmJob) -> None:
        """Requeue a job if that is allowed; else tell the scheduler that it runs on."""
        name, belief = job.name, self._belief
        if self._setting.preempt and job.requeue and self._setting.takes(job) and self._runs_now(name):
            self._released.add(name)
            if not self._call(commands.requeue(name)):
                self._requeued[name] = belief.now_us
                return
        belief.say(name, "it is not stopped, and runs on")
        with belief.together():
            belief.take_off(name)
            self._adopt(job, Counter())

    def _runs_now(self, job: str) -> bool:
        """Ask anew whether a job runs, for Slurm would run one again that has just ended."""
        try:
            return self._run(commands.state_of(job)).strip() == "RUNNING"
        except SlurmError:
            return False

    def _is_leaving(self, job: SlurmJob) -> bool:
        """Return whether a job was stopped a moment ago, and still holds its nodes."""
        since_us = self._requeued.get(job.name) if job.state == "runs" else None
        return since_us is not None and self._belief.now_us - since_us < self._setting.patience_us

    def _fail(self, job: SlurmJob, why: str) -> None:
        """Have a job wait whose start failed; after several failures Slurm has it."""
        self._belief.say(job.name, f"it is not started: {why}")
        self._belief.take_off(job.name, why)
        self._since.pop(job.name, None)
        self._failures[job.name] += 1
        if self._failures[job.name] >= _MOST_FAILURES:
            self._give_back(job, f"its start failed {_MOST_FAILURES} times: {why}")

    def _give_back(self, job: SlurmJob, why: str) -> None:
        """Leave a job to Slurm for good."""
        name = job.name
        if name in self._released and self._call(commands.place(name, ())):
            return
        if not self._call(commands.release(name)):
            self._belief.write("given-back", job=name, reason=why)
            self._released.discard(name)
            self._belief.finish(name)

    def _call(self, command: Command) -> str:
        """Log a command, run it, and return why it failed; empty where it did not."""
        self._belief.write("command", command=list(command))
        try:
            self._run(command)
        except SlurmError as error:
            self._belief.write("failed", command=list(command), reason=str(error))
            return str(error)
        return ""
