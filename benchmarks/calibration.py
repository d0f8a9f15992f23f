"""How far simulations of policies that clusters run are from what a trace says happened.

Run it as ``python benchmarks/calibration.py [--trace FORMAT:FILE --cluster WORDS] [POLICY...]``. The default is the one
trace of ``JIGSAW_SHARED`` that tells starts: the pods of Alibaba's GPU trace of 2023, on the servers that its list of
nodes has, each pod on the types of GPU that it names, for as long as it ran. A part of a GPU counts as a whole one. The
row ``recorded`` is the record itself. The error is the mean distance of a job's simulated wait from the recorded one.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from common import outcome_of, print_table, shared, timed

from jigsaw_opt.simulation.metrics import median, quantile
from jigsaw_opt.simulation.reading import read_setting
from jigsaw_opt.simulation.recorded import most_gpus, simulation_of
from jigsaw_opt.simulation.setting import Setting

POLICIES = ("recorded", "fifo", "backfill:default_limit=168")
HEADS = ("policy", "mean wait h", "median wait h", "p99 wait h", "mean completion h", "mean error of a wait h", "CPU s")
_HOUR_US = 3_600_000_000


def main() -> None:
    """Print a row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--trace")
    parser.add_argument("--cluster")
    options = parser.parse_args()
    trace = options.trace or f"alibaba:{shared('cluster/alibaba/openb_pod_list_default.csv')}"
    cluster = options.cluster or alibaba_servers()
    kinds = () if options.cluster else dict.fromkeys(part.partition(":")[2] for part in cluster.split("+"))
    speeds = ",".join(f"{kind}=1" for kind in kinds)
    setting = read_setting(trace, cluster, "recorded", round_s=0, restart_s=0, too_wide="skip", speeds=speeds)
    jobs, most = setting.workload.jobs, most_gpus(setting.workload)
    print(f"{len(jobs)} jobs; the record holds {most} GPUs at once, of {setting.gpu_count}")
    print_table(HEADS, rows(setting, options.policies))


def alibaba_servers() -> str:
    """Return the servers of Alibaba's list of nodes, in the words of a cluster."""
    with shared("cluster/alibaba/openb_node_list_gpu_node.csv").open(encoding="utf-8") as lines:
        kinds = Counter((row["model"], int(row["gpu"])) for row in csv.DictReader(lines))
    return "+".join(f"{count}x{gpus}:{model}" for (model, gpus), count in sorted(kinds.items()) if gpus)


def rows(setting: Setting, policies: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield a line of the table for each policy."""
    jobs = setting.workload.jobs
    recorded = [(job.start_us or 0) - job.submit_us for job in jobs]
    for policy in policies:
        outcome, cpu_s = timed(lambda words=policy: outcome_of(simulation_of(setting.under(words))))
        waits = [(one.start_us or 0) - jobs[one.index].submit_us for one in outcome.jobs]
        lasted = [(one.finish_us or 0) - jobs[one.index].submit_us for one in outcome.jobs]
        error = fmean(abs(new - old) for new, old in zip(waits, recorded, strict=True))
        middle, last = median(waits) or 0, quantile(waits, 0.99) or 0
        figures = (fmean(waits), middle, last, fmean(lasted), error)
        yield (f"`{policy}`", *(f"{figure / _HOUR_US:.3f}" for figure in figures), f"{cpu_s:.0f}")


if __name__ == "__main__":
    main()
