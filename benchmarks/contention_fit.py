"""The measured all-reduce times with 1 to 16 sharing jobs, and the degradation that fits them.

Run it as ``python benchmarks/contention_fit.py``, with the files as arguments or the folder of measured data in
JIGSAW_SHARED. A file has the columns job_num, msg_size (bytes) and avg_latency (microseconds). One table a file: a row
a message size and one for all sizes, with the slope of the slowdown, the model that it is, and the errors of
the fit (fitted over measured, less 1); then the measured and the fitted slowdown of every sample.
"""

from __future__ import annotations

import argparse
import csv
from fractions import Fraction
from pathlib import Path

from common import shared

from jigsaw_opt.problem.contention import ExchangeSample, Fit, fit_degradation

FOLDER = "cluster/NO_LICENCE_STATED/hkbu_network_contention"
DEFAULT = ("results_avg.csv", "results_max_max.csv")


def read(path: Path) -> list[ExchangeSample]:
    with path.open(newline="") as file:
        return [
            ExchangeSample(int(row["job_num"]), int(row["msg_size"]), Fraction(row["avg_latency"]))
            for row in csv.DictReader(file)
        ]


def summary(label: str, fit: Fit) -> str:
    model, errors = fit.model, [float(error) for error in fit.residuals]
    spread = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    fitted = f"{float(fit.slope):>9.4f}{float(model.alpha):>9.4f}{float(model.uncontended):>13.4f}"
    return f"{label:>10}{fitted}{spread:>10.1%}{max(map(abs, errors)):>9.1%}"


def slowdowns(samples: list[ExchangeSample], fits: dict[int, Fit]) -> list[str]:
    """One line a number of jobs, with the measured and the fitted slowdown at each size."""
    alone = {sample.size: sample.time_us for sample in samples if sample.sharing == 1}
    measured = {(s.sharing, s.size): s.time_us / alone[s.size] for s in samples}
    counts = sorted({sample.sharing for sample in samples})
    return [
        f"{count:>4}"
        + "".join(
            f"{float(measured[count, size]):>12.2f}{float(fits[size].model.slowdown(count)):>8.2f}" for size in fits
        )
        for count in counts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    for path in parser.parse_args().files or [shared(FOLDER, name) for name in DEFAULT]:
        samples = read(path)
        fits = {
            size: fit_degradation([s for s in samples if s.size == size]) for size in sorted({s.size for s in samples})
        }
        print(f"{path.name}\n{'bytes':>10}{'slope':>9}{'alpha':>9}{'uncontended':>13}{'rms':>10}{'largest':>9}")
        for label, fit in [*fits.items(), ("all", fit_degradation(samples))]:
            print(summary(str(label), fit))
        print("jobs" + "".join(f"{size:>12}{'fitted':>8}" for size in fits))
        print("\n".join(slowdowns(samples, fits)), end="\n\n")


if __name__ == "__main__":
    main()
