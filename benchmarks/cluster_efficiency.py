"""Cluster efficiency by policy and by how noisy gradients are: a saturated week of Philly on 8 servers of 8 GPUs.

Run as ``python benchmarks/cluster_efficiency.py [--load L] [--days D] [--mix MIX ...] [POLICY ...]``. Of the jobs that
were submitted in the first `D` days of a week of Philly (``JIGSAW_SHARED``) each is kept with a chance that makes the
GPU time asked for `L` times that of the cluster in that time. The trace has no models: one of five bundled, estimated
profiles is drawn for each job, all equally likely, with as many iterations as last as long as the trace says.

Nobody has measured the noise of the gradients of these networks: **the noise scales are assumptions**, the same for all
buckets of a network, in batches of a worker, and all buckets weigh the same. A mix gives each network a noise scale.
Efficiency is that until the end of the last day, before the queue runs dry, without the first quarter, in which the
queue builds up. Completion times of the jobs that have ended until then tell little of a policy: which jobs these are
depends on it. Only ``--to-end`` makes them comparable.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from common import print_table, shared, with_noise

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.instances.profiles import profile
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.workload_changes import with_models
from jigsaw_opt.simulation.results.metrics import summarise

DAY_US = 86_400_000_000
NETWORKS = {"resnet50": 64, "vgg16": 32, "bert_large": 8, "gpt2_small": 4, "gpt2_medium": 2}
"""Networks, and samples in a batch of a worker."""
SEGMENTS = 8
MIXES: Mapping[str, tuple[float, ...] | None] = {
    "low": (0.1,) * 5,
    "middle": (4.0,) * 5,
    "high": (1000.0,) * 5,
    "mixed": (0.1, 1.0, 4.0, 16.0, 1000.0),
    "unknown": None,
}
"""Assumed noise scales of the networks, in batches of a worker; None where nobody knows."""
POLICIES = ("srtf", "jigsaw:depth=full", "jigsaw:depth=staircase", "jigsaw")
HEADS = ("mix", "counted", "policy", "efficiency", "mean completion h", "jobs ended", "raw", "median ms", "p95 ms")


def main() -> None:
    """Print the table, and say where the default is below full depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--mix", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--load", type=float, default=3.0)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--week", default="2017w46")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to-end", action="store_true", help="go on until all jobs have ended")
    parser.add_argument("--raw", action="store_true", help="count raw, too")
    given = parser.parse_args()
    workload, found = saturated(given), dict[tuple[str, str, str], float]()

    def rows() -> Iterator[tuple[object, ...]]:
        for mix in given.mix:
            for counted in ("raw", "goodput") if given.raw else ("goodput",):
                for policy in given.policies:
                    efficiency, *others = measured(workload, given, mix, counted, policy)
                    found[mix, counted, policy] = efficiency
                    yield mix, counted, policy, f"{efficiency:.4f}", *others

    print(f"{len(workload.jobs)} jobs, load {given.load}, {given.days:g} days, seed {given.seed}; noise scales assumed")
    print_table(HEADS, rows())
    for (mix, counted, policy), efficiency in found.items():
        full = found.get((mix, counted, "jigsaw:depth=full"))
        if policy == "jigsaw" and full is not None:
            print(f"{mix}, {counted}: jigsaw x {efficiency / full:.4f} of depth=full")


def saturated(given: argparse.Namespace) -> Workload:
    """Return the part of the week, with a model for each job."""
    where = performance(given, "unknown", "raw")
    file = shared("cluster/philly", f"philly_jobs_{given.week}.csv")
    jobs = read_trace("philly", file.read_bytes(), file.name).jobs
    first_us, gpus = jobs[0].submit_us, where.cluster.gpu_count
    early = [job for job in jobs if job.submit_us < first_us + given.days * DAY_US and job.gpus <= gpus]
    asked_us = sum((job.iterations or 0) * job.gpus for job in early) * 1_000_000
    share, draw = given.load * gpus * given.days * DAY_US / asked_us, random.Random(given.seed)
    kept = tuple(replace(job, submit_us=job.submit_us - first_us) for job in early if draw.random() < share)
    return with_models(Workload(given.week, kept), where, sorted(NETWORKS), given.seed)


def performance(given: argparse.Namespace, mix: str, counted: str) -> Profiled:
    """Return the networks on servers of 8 V100 with NVLink, each on a link of 100 Gbit/s to one switch."""
    boxes = tuple(Server(f"s{k}", "v100", 8, 32_000_000_000, 130_000_000_000, 5) for k in range(given.servers))
    links = tuple(Link(f"l{k}", (box.name, "switch"), 12_500_000_000, 10) for k, box in enumerate(boxes))
    scales = MIXES[mix] or (None,) * len(NETWORKS)
    models = {
        name: with_noise(profile(name, batch, ("v100",), SEGMENTS), scale)
        for (name, batch), scale in zip(NETWORKS.items(), scales, strict=True)
    }
    return Profiled(Cluster(boxes, ("switch",), links), models, counted)


def measured(
    workload: Workload, given: argparse.Namespace, mix: str, counted: str, policy: str
) -> tuple[float, str, int, str, str, str]:
    """Return the efficiency behind the first quarter, and other measures, of one simulation."""
    where = performance(given, mix, counted)
    setting = Setting(where.cluster, workload, where).under(policy)
    simulation, span_us = Simulation(setting), round(given.days * DAY_US)
    simulation.run(until_us=span_us // 4)
    before, since_us = credit_us(simulation), simulation.now_us
    simulation.run(until_us=span_us)
    efficiency = (credit_us(simulation) - before) / (setting.gpu_count * max(1, simulation.now_us - since_us))
    if given.to_end:
        simulation.run()
    outcome = simulation.close()
    s = summarise(setting, outcome)
    ended, times = s.jobs - s.unfinished, (s.median_policy_ms or 0.0, s.p95_policy_ms or 0.0)
    shown = (f"{ms:.1f}" for ms in times)
    return efficiency, f"{s.mean_completion_h or 0.0:.3f}", ended, " ".join(outcome.raw_models) or "none", *shown


def credit_us(simulation: Simulation) -> float:
    """Return the work done so far, in GPU time that it takes alone at full depth."""
    setting, here = simulation.setting, copy.deepcopy(simulation)
    summary = summarise(setting, here.close())
    return summary.cluster_efficiency * setting.gpu_count * max(1, here.now_us - setting.workload.jobs[0].submit_us)


if __name__ == "__main__":
    main()
