"""Cluster efficiency and completion times by policy: a saturated week of Philly on 8 servers of 8 GPUs.

Run as ``python benchmarks/cluster_efficiency.py [--load L] [--week W] [POLICY...]``. Of the jobs that were submitted in
a week of Philly (``JIGSAW_SHARED``) each is kept with a chance that makes the GPU time asked for `L` times that of the
cluster in a week. The trace has no models: one of five bundled, estimated profiles is drawn for each job, all equally
likely, and the job gets as many iterations as last as long as the trace says. Submission times, GPUs and durations
are the trace's. Completion times are those of all jobs, run to their end. Efficiency is that from the third day to the
end of the week: before that the queue has yet to build up.
"""

from __future__ import annotations

import argparse
import copy
import random
from dataclasses import replace

from common import shared

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.instances.profiles import profile
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.mix import with_models
from jigsaw_opt.simulation.setting import Setting

DAY_US = 86_400_000_000
NETWORKS = {"resnet50": 64, "vgg16": 32, "bert_large": 8, "gpt2_small": 4, "gpt2_medium": 2}
SERVERS, SEGMENTS = 8, 8
EXCLUSIVE = ("fifo", "srtf", "srtf:measure=service", "las", "sjf_bco")
SHARING = ("jigsaw:depth=full", "jigsaw:depth=staircase", "jigsaw")


def main() -> None:
    """Print the table, and what each idea adds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=[*EXCLUSIVE, *SHARING])
    parser.add_argument("--load", type=float, default=3.0)
    parser.add_argument("--week", default="2017w46")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    setting = saturated(arguments.week, arguments.load, arguments.seed)
    print(f"{len(setting.workload.jobs)} jobs, load {arguments.load}, week {arguments.week}, seed {arguments.seed}")
    print("| policy | efficiency, days 3-7 | to the end | mean completion h | median | p99 | restarts a job | p95 ms |")
    print("|---|---|---|---|---|---|---|---|")
    found = {text: row(setting, text) for text in arguments.policies}
    if not found.keys() >= {*EXCLUSIVE, *SHARING}:
        return
    alone = max(found[text] for text in EXCLUSIVE)
    whole, fixed, chosen = (found[text] for text in SHARING)
    print(
        f"interleaving and packing x {whole / alone:.3f}, staircase x {fixed / whole:.3f}, "
        f"levels chosen in every iteration x {chosen / fixed:.3f}; SPB in all x {chosen / whole:.3f}"
    )


def saturated(week: str, load: float, seed: int, servers: int = SERVERS) -> Setting:
    """The cluster, and the part of the week."""
    cluster = star(servers)
    models = {name: profile(name, batch, ("v100",), SEGMENTS) for name, batch in NETWORKS.items()}
    performance = Profiled(cluster, models)
    file = shared("cluster/philly", f"philly_jobs_{week}.csv")
    trace = read_trace("philly", file.read_bytes(), file.name)
    fitting = [job for job in trace.jobs if job.gpus <= cluster.gpu_count]
    asked = sum((job.iterations or 0) * job.gpus for job in fitting) * 1_000_000
    share, draw = load * cluster.gpu_count * 7 * DAY_US / asked, random.Random(seed)
    kept = [job for job in fitting if draw.random() < share]
    jobs = tuple(replace(job, submit_us=job.submit_us - kept[0].submit_us) for job in kept)
    return Setting(cluster, with_models(Workload(week, jobs), performance, sorted(models), seed), performance)


def star(servers: int) -> Cluster:
    """Servers of 8 V100 with NVLink, each on a link of 100 Gbit/s to one switch."""
    boxes = tuple(Server(f"s{k}", "v100", 8, 32_000_000_000, 130_000_000_000, 5) for k in range(servers))
    links = tuple(Link(f"l{k}", (f"s{k}", "switch"), 12_500_000_000, 10) for k in range(servers))
    return Cluster(boxes, ("switch",), links)


def row(setting: Setting, text: str) -> float:
    """Print a row of the table; the efficiency while the cluster is saturated."""
    simulation = Simulation(setting.under(text))
    simulation.run(until_us=2 * DAY_US)
    before = credit_us(simulation)
    start_us = simulation.now_us
    simulation.run(until_us=7 * DAY_US)
    saturated_us = setting.gpu_count * (simulation.now_us - start_us)
    efficiency = (credit_us(simulation) - before) / saturated_us
    simulation.run()
    s = summarise(setting, simulation.close())
    values = (s.mean_completion_h, s.median_completion_h, s.p99_completion_h, s.mean_restarts, s.p95_policy_ms)
    shown = " | ".join(f"{value:.2f}" for value in values)
    print(f"| {text} | {efficiency:.3f} | {s.cluster_efficiency:.3f} | {shown} |", flush=True)
    return efficiency


def credit_us(simulation: Simulation) -> float:
    """Work done so far, in GPU time that it takes alone at full depth."""
    setting, here = simulation.setting, copy.deepcopy(simulation)
    summary = summarise(setting, here.close())
    return summary.cluster_efficiency * setting.gpu_count * max(1, here.now_us - setting.workload.jobs[0].submit_us)


if __name__ == "__main__":
    main()
