"""What a policy is, what it sees, and the registry of policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Protocol, runtime_checkable

from jigsaw_opt.errors import Code, UsageError
from jigsaw_opt.problem.cluster import Cluster, joined_parts
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.gpu_pools import GpuPool, PoolChoice, pool_of_servers, pools_of_cluster
from jigsaw_opt.scheduling.option_values import OpenValues
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.plain import Kept, NumberLimits, Plain, Shape, checked, fields, whole
from jigsaw_opt.system.plugins import load, loadable, registered, require_members
from jigsaw_opt.text import nearest

GROUP = "jigsaw_opt.policies"
_OWN = {"recorded": "jigsaw_opt.scheduling.policies:RECORDED"}
"""What is found by name without being registered; ``recorded`` stands where a policy does and is none."""
JOB_FIELDS: Mapping[str, str] = {
    "weight": "weight",
    "foreground": "place in the foreground",
    "priority": "priority",
    "qos": "QOS",
    "account": "account",
    "queue": "queue",
    "preemptible": "preemptible flag",
}
"""The fields by which jobs ask to be treated differently, with their names in sentences."""
NEVER_STOPS = frozenset({"preemptible"})
"""The field that a policy which never stops a job for another respects without reading it."""
ROUND_US = 60_000_000
RESTART_US = 30_000_000


class ClusterSetting:
    """The common part of settings: a cluster, how fast jobs run there, and how often is decided.

    `cluster`: the servers, whose GPUs are numbered through from 0. `round_us`: decisions are made at multiples of this;
    0 for at once when a job arrives or ends. `restart_us`: time without progress when a job starts on other GPUs, its
    first start included. `seed`: seed of policies that draw lots. `needs_links`: whether jobs need links between
    servers also where the cluster states none.
    """

    cluster: Cluster
    performance: Performance
    round_us: int
    restart_us: int
    seed: int
    needs_links: bool

    @property
    def server_of(self) -> tuple[int, ...]:
        """Number of the server of each GPU."""
        return self.cluster.gpus.server_of

    @property
    def gpus_of(self) -> tuple[range, ...]:
        """Numbers of the GPUs of each server."""
        return self.cluster.gpus.of_server

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the servers that links join, by part of the cluster: a job is placed in one (placement).

        A cluster without any link says nothing of its network, and is one part, unless jobs need links.
        """
        return self.joined(range(len(self.cluster.servers)))

    @cached_property
    def pools(self) -> tuple[GpuPool, ...]:
        """The parts of the cluster by type and memory of their GPUs: a job that is placed is placed in one."""
        return pools_of_cluster(self.cluster, self.parts)

    @cached_property
    def pool_of(self) -> tuple[GpuPool, ...]:
        """The pool of each GPU."""
        of_server = {k: pool for pool in self.pools for k in pool.servers}
        return tuple(of_server[k] for k in self.server_of)

    @cached_property
    def pool_choice(self) -> PoolChoice:
        """Says which of the pools a job can run in."""
        return PoolChoice(self.pools, self.gpus_of, self.performance)

    @cached_property
    def _last_parts(self) -> dict[frozenset[int], tuple[int, ...]]:
        """The last answer of `part_of`."""
        return {}

    def part_of(self, dead: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """Return for each server the number of its part of the cluster while the links `dead` are down (placement)."""
        last, servers, links = self._last_parts, self.cluster.servers, self.cluster.links
        if not (links or self.needs_links):
            return (0,) * len(servers)
        if dead not in last:
            of_node = joined_parts(self.cluster, (link for k, link in enumerate(links) if k not in dead))
            last.clear()
            last[dead] = tuple(of_node[server.name] for server in servers)
        return last[dead]

    def joined(self, servers: Iterable[int], dead: frozenset[int] = frozenset()) -> tuple[tuple[int, ...], ...]:
        """Return servers by part of the cluster while the links `dead` are down, in their order."""
        part_of, found = self.part_of(dead), dict[int, list[int]]()
        for server in servers:
            found.setdefault(part_of[server], []).append(server)
        return tuple(map(tuple, found.values()))

    def is_cut(self, gpus: Iterable[int], dead: frozenset[int]) -> bool:
        """Return whether no links join the servers of GPUs while the links `dead` are down."""
        part_of = self.part_of(dead)
        return len({part_of[self.server_of[gpu]] for gpu in gpus}) > 1

    def pools_up(self, dead: frozenset[int]) -> tuple[tuple[GpuPool, ...], ...]:
        """Return what each of the `pools` falls into while the links `dead` are down, under its number."""
        if not dead:
            return tuple((pool,) for pool in self.pools)
        return tuple(
            tuple(pool_of_servers(self.cluster, pool.number, pool.kind, own) for own in self.joined(pool.servers, dead))
            for pool in self.pools
        )

    def most_joined(self, down: frozenset[int] = frozenset(), dead: frozenset[int] = frozenset()) -> dict[str, int]:
        """Return the most GPUs of each type that one job can have while GPUs are `down` and links are `dead`.

        Number of GPUs by type: those of the largest part that links still join.
        """
        part_of, counts = self.part_of(dead), Counter[tuple[str, int]]()
        for server, gpus in enumerate(self.gpus_of):
            up = len(gpus) - len(down.intersection(gpus))
            counts[self.cluster.servers[server].gpu_type, part_of[server]] += up
        return {kind: max(n for (own, _), n in counts.items() if own == kind) for kind, _ in counts}

    def most_for(self, job: TraceJob, joined: Mapping[str, int]) -> int:
        """Return the most GPUs of one type that a job can have, of those `joined` by type, as of `most_joined`."""
        return max((joined.get(kind, 0) for kind in self.pool_choice.types_of(job)), default=0)

    @property
    def gpu_count(self) -> int:
        """Number of GPUs of the cluster."""
        return len(self.server_of)

    def gpus_up(self, gpu_type: str, down: frozenset[int]) -> int:
        """Return how many GPUs of a type are not among those that are `down`."""
        types = self.cluster.gpus.types
        return types.count(gpu_type) - sum(types[gpu] == gpu_type for gpu in down)

    def restart_of(self, job: TraceJob) -> int:
        """Return time without progress when `job` starts on other GPUs."""
        own = self.performance.restart_us(job)
        return self.restart_us if own is None else own


@dataclass(frozen=True)
class PolicySetting(ClusterSetting):
    """The knowledge of a policy at the start. It learns of jobs, failures and the load of links as they come."""

    cluster: Cluster
    performance: Performance
    round_us: int = ROUND_US
    restart_us: int = RESTART_US
    seed: int = 0
    needs_links: bool = False


@dataclass(slots=True)
class JobState(Kept):
    """A submitted job that has not ended, as a policy sees it; policies read it and never write.

    `index, job`: its number in the workload, and the job. `work, done`: units of work in all, and those done up to now.
    `gpu_us`: attained service: GPU-microseconds held up to now (a share's GPUs count for its jobs in equal parts).
    `run_us`: time for which it has held GPUs. `share`: what it runs in, or None while it waits. `starts`: how often it
    was started; all but the first are restarts.
    """

    index: int
    job: TraceJob
    work: int
    done: int = 0
    gpu_us: int = 0
    run_us: int = 0
    share: Share | None = None
    starts: int = 0

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of the GPUs that it holds, none while it waits."""
        return () if self.share is None else self.share.gpus

    @property
    def left(self) -> int:
        """Units of work that are left."""
        return self.work - self.done

    def copy(self) -> JobState:
        """Return a job that changes apart from this one; written out, as every step copies all jobs."""
        figures = self.work, self.done, self.gpu_us, self.run_us
        return JobState(self.index, self.job, *figures, self.share, self.starts)

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        return fields(
            job=limits.job, done=whole(), gpu_us=limits.service, run_us=limits.time, starts=whole(limits.rounds)
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation by a policy that is asked: what has happened, and nothing of what is still to come.

    `jobs`: the active jobs by number, in order of submission. `shares`: what runs up to now, without the jobs that have
    ended. `arrived, ended`: numbers of the jobs submitted and ended since the policy was last asked. `unfinished`:
    those of the ended that were cancelled, or that are kept from the policy, so that nobody knows how long they take.
    `stopped`: jobs that failures have stopped since then; they wait, and have done what they had saved. Among the
    arrived and stopped are the `adopted`: whoever runs the cluster has started them, elsewhere than the policy decided.
    `down`: GPUs that are down now: no share may have one. What runs has none. `dead`: numbers of the links that are
    down now: a share is on servers that the others join (`ClusterSetting.part_of`). What runs is.
    """

    now_us: int
    jobs: Mapping[int, JobState]
    shares: tuple[Share, ...]
    arrived: tuple[int, ...] = field(default=())
    ended: tuple[int, ...] = field(default=())
    stopped: tuple[int, ...] = field(default=())
    down: frozenset[int] = field(default=frozenset())
    dead: frozenset[int] = field(default=frozenset())
    unfinished: tuple[int, ...] = field(default=())

    @property
    def adopted(self) -> tuple[int, ...]:
        """Numbers of the jobs that run though the policy has not started them where they run: it never decided so."""
        return tuple(k for k in (*self.arrived, *self.stopped) if self.jobs[k].share is not None)

    @property
    def running_as_decided(self) -> frozenset[int]:
        """Numbers of the jobs that run where the policy has put them."""
        return frozenset(k for share in self.shares for k in share.jobs).difference(self.adopted)

    @property
    def known(self) -> frozenset[int]:
        """Numbers of the jobs that were there when the policy was last asked."""
        return frozenset(self.jobs) - frozenset(self.arrived) | frozenset(self.ended)


class Scheduler(Protocol):
    """A policy at work on one setting."""

    def decide(self, observation: Observation) -> Decision:
        """Say what runs from now on."""


@runtime_checkable
class Selective(Scheduler, Protocol):
    """A policy at work that cannot run every job."""

    def refuses(self, job: TraceJob) -> str | None:
        """Return why it can never run `job` in its setting, or None; it remembers nothing of the job."""


@runtime_checkable
class Resumable(Scheduler, Protocol):
    """A policy at work that can be put aside, and with it the simulation."""

    def state(self) -> Plain:
        """Return what it has to remember: values of JSON that follow from neither setting nor observation."""

    def restore(self, state: Plain, observation: Observation) -> None:
        """Go on, from the beginning, as the one that gave `state`.

        Parameters
        ----------
        state
            A state from a file, not to be trusted. `jigsaw_opt.scheduling.plain.checked` checks its shape.
        observation
            What the policy would see if it were asked now; `Observation.known` are the jobs that it has been told of.

        Raises
        ------
        InvalidInputError, ValueError
            No such policy gives this state at this moment.
        """


@runtime_checkable
class Learning(Scheduler, Protocol):
    """A policy at work that predicts from jobs that have ended."""

    def learn(self, ended: Iterable[tuple[TraceJob, int]]) -> None:
        """Take note of jobs that ended before it began, in this order, with the microseconds that each lasted."""


class Stateless:
    """A policy at work that decides by the setting and the moment alone: to put it aside there is nothing to keep."""

    __slots__ = ()

    def state(self) -> Plain:
        """Return an empty state."""
        return {}

    def restore(self, state: Plain, observation: Observation) -> None:
        """Check that the state to restore is empty."""
        checked(state, fields())


@runtime_checkable
class Policy(Protocol):
    """A policy, as an entry point of the group ``jigsaw_opt.policies`` names it. Loading it imports no engine."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def display_name(self) -> str:
        """One line for a list of policies."""

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        """Values that each option may have, the default first; an empty mapping where there is nothing to choose.

        `OpenValues` stand for more than those listed.
        """

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Scheduler:
        """Start the policy on an empty cluster without jobs.

        Parameters
        ----------
        setting
            The cluster and its performance model.
        options
            A value for every option.

        Raises
        ------
        UsageError
            The policy does not work with this setting (its kind of performance, say).
        """


def unread_fields(policy: Policy, options: Mapping[str, str]) -> list[str]:
    """Return those of the `JOB_FIELDS` that a policy does not read.

    A policy declares what it reads by a member ``reads``: names of fields, or a function that returns them for its
    options. A policy without it may read all.
    """
    read = _declared(policy, "reads", options, JOB_FIELDS)
    return [name for name in JOB_FIELDS if name not in read]


def require_stated(policy: Policy, stated: Mapping[str, str], jobs: Collection[TraceJob]) -> None:
    """Refuse options that have no effect, as no job states the field that they go by.

    A policy declares such fields by a member ``needs``, as it does by ``reads``.
    """
    needed = sorted(_declared(policy, "needs", stated, ()))
    if lacking := [name for name in needed if not any(job.states(name) for job in jobs)]:
        told = (JOB_FIELDS.get(name, name) for name in lacking)
        raise UsageError(
            *(f"policy {policy.name!r} is to go by the {what} of jobs, and no job states one" for what in told),
            code="missing-field",
            path="policy",
        )


def _declared(policy: Policy, member: str, options: Mapping[str, str], default: Collection[str]) -> Collection[str]:
    """Return the names of fields that an optional member of a policy gives."""
    found = getattr(policy, member, default)
    declared: Collection[str] = found(options) if callable(found) else found
    return declared


def names() -> tuple[str, ...]:
    """Return names of all registered policies, sorted; none of them is loaded."""
    return registered(GROUP)


@cache
def find(name: str) -> Policy:
    """Return the policy registered as `name`."""
    policy: Policy = load(GROUP, "policy", name, _OWN)
    require_members("policy", name, policy, ("name", "display_name", "options", "start"))
    return policy


def loadable_policies() -> dict[str, Policy]:
    """Return all registered policies by name but those that do not load, of which a warning is logged."""
    return dict(loadable(lambda name: (name, find(name)), names()))


def choose(given: str | Policy) -> tuple[Policy, dict[str, str]]:
    """Return a policy and all its options: those that are stated, and the first value of each other."""
    policy, stated = stated_options(given)
    return policy, {key: values[0] for key, values in policy.options.items()} | stated


def stated_options(given: str | Policy) -> tuple[Policy, dict[str, str]]:
    """Return a policy and the options that are stated as in ``gavel:objective=max_sum``; an object states none."""
    name, *changes = given.split(":") if isinstance(given, str) else [given.name]
    policy = find(name) if isinstance(given, str) else given
    options: dict[str, str] = {}
    for change in changes:
        key, _, value = change.partition("=")
        if key not in policy.options:
            message = f"policy {name!r} has no option {key!r}; {nearest(key, policy.options)}"
            raise UsageError(message, code="unknown-option", path=f"policy.{key}")
        known = policy.options[key]
        if value not in known:
            code: Code = "unknown-value"
            what = nearest(value, known)
            if isinstance(known, OpenValues):
                code, what = "out-of-range", f"it is {known.kind}"
            raise UsageError(f"{key!r} of policy {name!r} is not {value!r}; {what}", code=code, path=f"policy.{key}")
        options[key] = value
    return policy, options
