"""What a scheduler believes of a cluster of Slurm: where each job is, and how it is told that this is otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.errors import UsageError
from jigsaw_opt.scheduling import JobFinished, JobHeld, JobReleased, JobRequeued, JobRunning, JobSubmitted, StartFailed
from jigsaw_opt.scheduling.live.events import ClusterEvent
from jigsaw_opt.serving.slurm.cluster import SlurmCluster
from jigsaw_opt.serving.slurm.log import ClientLog
from jigsaw_opt.serving.slurm.reading import SlurmJob
from jigsaw_opt.serving.slurm.scheduler import SchedulerBackend


class Belief:
    """The jobs that a scheduler knows, each with the GPUs that it is believed to have; none where it waits.

    Every change is an event first, and counts only if the scheduler takes it.
    """

    def __init__(self, cluster: SlurmCluster, scheduler: SchedulerBackend, log: ClientLog) -> None:
        self.cluster, self.now_us = cluster, 0
        self.known = scheduler.known()
        self.at = dict(self.known.jobs)
        self._scheduler, self._log = scheduler, log
        self._on_hold: set[str] = set()
        self._unsure = set(self.at)
        """Jobs that the scheduler knew before, of which it is to be told once whether they are on hold."""
        self._said: dict[str, str] = {}
        self._kept: list[tuple[str, ClusterEvent]] | None = None
        """Events of a block that are handed over together at its end; None outside of one."""

    def taken(self, but: str) -> set[str]:
        """Return the GPUs of all jobs but one."""
        return {gpu for job, gpus in self.at.items() if job != but for gpu in gpus}

    def is_as(self, job: SlurmJob) -> bool:
        """Return whether a job that runs is believed to be on the nodes where it is."""
        return self.cluster.nodes_of(self.at.get(job.name, ())) == self.cluster.where(job)

    def submit(self, job: SlurmJob) -> bool:
        """Tell of a job that waits, and in the same list that it may not be started yet, if that is so."""
        events: list[ClusterEvent] = [JobSubmitted(self.now_us, self.cluster.trace_job(job), job.partition)]
        if not job.ready:
            events.append(JobHeld(self.now_us, job.name))
        taken = self.tell(job.name, *events)
        if taken:
            self.at[job.name] = ()
            self._on_hold |= set() if job.ready else {job.name}
        return taken

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hand the events of a block over as one list, so that nothing is decided between them.

        If the list is refused, each event is handed over alone, and those count that are taken.
        """
        known, self._kept = set(self.at), []
        yield
        kept, self._kept = self._kept, None
        try:
            if kept:
                self._scheduler.handle(*(event for _, event in kept))
        except UsageError:
            for job, event in kept:
                if not self.tell(job, event) and isinstance(event, JobRunning):
                    self.at.pop(job, None)
                    if job in known:
                        self.at[job] = ()

    def put(self, job: SlurmJob, gpus: tuple[str, ...], start_us: int) -> None:
        """Tell that a job has these GPUs."""
        self.take_off(job.name)
        event = JobRunning(self.now_us, self.cluster.trace_job(job), gpus, start_us, queue=job.partition)
        if self.tell(job.name, event):
            self.at[job.name] = gpus

    def take_off(self, job: str, why: str = "") -> None:
        """Tell that a job waits again if it is believed to run; `why`: where its start failed."""
        if self.at.get(job):
            self.tell(job, StartFailed(self.now_us, job, why) if why else JobRequeued(self.now_us, job))
            self.at[job] = ()

    def hold(self, job: str, is_on_hold: bool) -> None:
        """Tell that a job is not to be started yet, or may be again; it keeps its place in the order of submission."""
        if job in self._unsure or is_on_hold != (job in self._on_hold):
            self.tell(job, (JobHeld if is_on_hold else JobReleased)(self.now_us, job))
            self._unsure.discard(job)
            (self._on_hold.add if is_on_hold else self._on_hold.discard)(job)

    def finish(self, job: str) -> None:
        """Tell that a job is gone, if it is known."""
        if self.at.pop(job, None) is not None:
            self._on_hold.discard(job)
            self.tell(job, JobFinished(self.now_us, job))

    def tell(self, subject: str, *events: ClusterEvent) -> bool:
        """Hand events over as one list, or keep them for the end of a block; return whether the scheduler takes it."""
        if self._kept is not None:
            self._kept += ((subject, event) for event in events)
            return True
        try:
            self._scheduler.handle(*events)
        except UsageError as error:
            self.say(subject, f"{type(events[0]).__name__} is refused: {error}")
            return False
        return True

    def say(self, subject: str, text: str, entry: str = "told", **facts: object) -> bool:
        """Log what is to be known of a subject, unless that was said last; return whether it is new."""
        is_new = self._said.get(subject) != text
        self._said[subject] = text
        if is_new:
            self.write(entry, **{"subject": subject, "text": text, **facts})
        return is_new

    def write(self, entry: str, **facts: object) -> None:
        """Log an entry."""
        self._log.write(self.now_us, entry, **facts)
