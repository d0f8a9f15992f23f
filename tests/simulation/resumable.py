"""A setting for every policy that there is, small enough to be simulated many times over."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jigsaw_opt.documents.readers.gavel import GavelJobType, Throughputs
from jigsaw_opt.documents.readers.profiles.pollux import Application, Epoch, PolluxSample
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.network.contention import FairSharing
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.scheduling.performance.goodput import Goodput
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.performance.table import Table
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.contention import LinkContention
from tests.simulation.cases import SECOND, cluster, random_jobs, setting, types

RATES: Throughputs = {
    "fast": {
        GavelJobType("a", 1): {None: (10.0,)},
        GavelJobType("b", 1): {None: (4.0,)},
        GavelJobType("a", 2): {None: (18.0,)},
    },
    "slow": {GavelJobType("a", 1): {None: (2.0,)}, GavelJobType("b", 1): {None: (2.0,)}},
}
KUEUE_QUEUES = Path(__file__).parents[1] / "data" / "kueue" / "queues.json"
STAGES = {
    "loads@1": StageTimes(711_000, 110_000, 0, 779_000),
    "computes@1": StageTimes(600, 410_000, 0, 426_000),
    "mixed@2": StageTimes(114_000, 72_000, 40_000, 191_000),
}


def plain() -> Setting:
    return setting(*random_jobs(5, 40), restart_s=10)


def accounted() -> Setting:
    """Jobs of several users and accounts."""
    owners = (("ann", "bio"), ("bob", "bio"), ("cat", "chem"), (None, None))
    jobs = (replace(job, user=u, account=a) for job, (u, a) in zip(random_jobs(7, 40), owners * 10, strict=True))
    return setting(*jobs, restart_s=10)


def classed() -> Setting:
    """Jobs of three classes and two queues, some of which may not be stopped."""
    queues = ("research", "production")
    jobs = (
        replace(job, priority=k % 3, weight=1 + k % 2, preemptible=None if k % 4 else False, queue=queues[k % 2])
        for k, job in enumerate(random_jobs(11, 40))
    )
    return setting(*jobs, restart_s=10)


def contended() -> Setting:
    """Jobs that slow each other down where they span servers, in epochs with speeds of their own."""
    servers = [Server(f"s{k}", "aws", 4, 10**9, 10**9) for k in range(3)]
    star = TOPOLOGIES["star"](servers, 10**8, 0)
    jobs = tuple(
        TraceJob(f"j{k}", 40 * k * SECOND, "net", (1, 2, 4, 8)[k % 4], batch_size=(64, 128)[k % 2]) for k in range(20)
    )
    performance = Goodput(star, {"aws": {"net": ApplicationProfile(application("aws", 1.0))}})
    return Setting(star, Workload("w", jobs), performance, LinkContention(star, FairSharing()), restart_us=7 * SECOND)


def by_type() -> Setting:
    made = types("2x2:fast+1x2:slow")
    draw = random.Random(2)
    jobs = []
    for k in range(14):
        submit_us, kind = draw.randrange(600) * SECOND, draw.choice([("a", 1), ("b", 1), ("a", 2)])
        jobs.append(TraceJob(f"j{k}", submit_us, *kind, draw.randrange(9000)))
    return Setting(made, Workload("w", tuple(jobs)), Table(made, RATES), restart_us=3 * SECOND)


def application(gpu: str, faster: float) -> Application:
    """A model whose samples take as long on one server as on several, but for the exchange."""

    def curve(servers: int, gpus: int) -> tuple[PolluxSample, ...]:
        sync_s = 0.0 if gpus == 1 else 0.01 * servers + 0.001 * gpus
        return tuple(PolluxSample(b, (0.05 + 0.002 * b) / faster + sync_s, sync_s) for b in (16, 32, 64))

    placements = {(1,): (1, 1), (2,): (1, 2), (4,): (1, 4), (4, 4): (2, 8)}
    epochs = {
        batch: tuple(Epoch(progress, 1.0 + k, 300.0) for k, progress in enumerate((2000.0, 4000.0, 7000.0)))
        for batch in (32, 64, 128, 512)
    }
    return Application(
        "net",
        gpu,
        {key: curve(*size) for key, size in placements.items()},
        {size: curve(*size) for size in placements.values()},
        epochs,
    )


def adaptive() -> Setting:
    made = types("2x4:aws+1x4:rtx")
    profiles = {
        gpu: {"net": ApplicationProfile(application(gpu, faster))} for gpu, faster in (("aws", 1.0), ("rtx", 1.7))
    }
    jobs = tuple(TraceJob(f"j{k}", 70 * k * SECOND, "net", 1, min_gpus=1, max_gpus=8, batch_size=128) for k in range(8))
    return Setting(made, Workload("w", jobs), Goodput(made, profiles))


def staged() -> Setting:
    draw = random.Random(3)
    jobs = []
    for k in range(16):
        model = draw.choice(list(STAGES))
        jobs.append(TraceJob(f"j{k}", draw.randrange(900) * SECOND, model, int(model[-1]), draw.randrange(50, 2000)))
    return Setting(cluster(2, 2), Workload("w", tuple(jobs), STAGES), Stages(STAGES))


def segmented() -> Setting:
    servers = tuple(Server(f"s{k}", "v", 4, 10**9, 10**10) for k in range(2))
    made, draw, jobs = TOPOLOGIES["star"](servers, 10**9, 10), random.Random(3), []
    for k in range(16):
        model, gpus, iterations = draw.choice(("small", "large")), draw.choice((1, 4, 4)), draw.randrange(100, 40_000)
        jobs.append(TraceJob(f"j{k}", k * 10 * SECOND, model, gpus, iterations))
    return Setting(made, Workload("w", tuple(jobs)), Profiled(made, MODELS), restart_us=SECOND)


def foregrounds() -> Setting:
    """Jobs on both servers whose exchange leaves holes, and jobs of one or four GPUs behind them."""
    servers = tuple(Server(f"s{k}", "v", 4, 10**9, 10**10) for k in range(2))
    made = TOPOLOGIES["star"](servers, 3 * 10**7, 10)
    draw = random.Random(4)
    jobs = []
    for k in range(12):
        gpus = (8, 1, 1, 4)[k % 4]
        model, iterations = draw.choice(("small", "large")), draw.randrange(100, 2000)
        jobs.append(TraceJob(f"j{k}", k * 10 * SECOND, model, gpus, iterations, foreground=gpus == 8))
    return Setting(made, Workload("w", tuple(jobs)), Profiled(made, MODELS), restart_us=SECOND)


def network(forward: int, backward: int) -> Model:
    """Segments whose backward pass takes the longer the nearer they are to the input; twice as fast on type a."""
    times = [(forward, backward * share // 4) for share in (8, 5, 2, 1)]
    both = [({"v": there, "a": there // 2}, {"v": back, "a": back // 2}) for there, back in times]
    return Model(tuple(Segment(f"s{k}", there, back, 10**6, 10**6) for k, (there, back) in enumerate(both)))


MODELS = {"small": network(10_000, 20_000), "large": network(25_000, 55_000)}


def at_once() -> Setting:
    """Decisions whenever something happens."""
    return setting(*random_jobs(9, 30), restart_s=10, round_us=0)


CASES: dict[str, Callable[[], Setting]] = {
    "backfill:estimates=recent": plain,
    "backfill:default_limit=4": contended,
    "backfill:kind=conservative:estimates=recent": plain,
    "fifo": plain,
    "fifo:placement=emptiest": contended,
    "multifactor:estimates=recent": accounted,
    "multifactor:estimates=recent:kind=conservative:reserve=servers:priority_flags=NO_FAIR_TREE": accounted,
    f"kueue:config={KUEUE_QUEUES}": classed,
    "priority:grace=60:exempt=200": classed,
    "priority:by=weight:victims=smallest:blocked=hold": classed,
    "las:aging=1": plain,
    "las:threshold=1": contended,
    "las:threshold=4": at_once,
    "srtf": contended,
    "srtf:measure=service:aging=1": plain,
    "sjf_bco": plain,
    "sjf_bco:variant=literal:threshold=2": contended,
    "gavel": by_type,
    "gavel:objective=max_min": by_type,
    "sia": adaptive,
    "interleave": staged,
    "interleave:service=attained": staged,
    "fill:order=shortest": foregrounds,
    "separate": foregrounds,
    "jigsaw": staged,
    "jigsaw:depth=staircase": segmented,
    "jigsaw:packing=columns": segmented,
}
"""Every policy, with options that change what it has to remember."""


def begun(text: str, where: Setting) -> Simulation:
    """The simulation of a policy, as on the command line, at its beginning."""
    return Simulation(where.under(text))


def halted(text: str, where: Setting, part: float) -> Simulation:
    """A simulation stopped between two events, after a part of all."""
    simulation, events = begun(text, where), 0

    def count() -> bool:
        nonlocal events
        events += 1
        return False

    begun(text, where).run(count)
    left = round(part * events)

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    simulation.run(stop)
    return simulation
