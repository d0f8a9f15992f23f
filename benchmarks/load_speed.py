"""CPU seconds to start, and to decode instance documents of growing size. Run ``python benchmarks/load_speed.py``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial

from common import timed

from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.instances import generate

SIZES = (8_000, 16_000, 32_500, 65_000)
NOTHING = ("-c", "pass")
STARTS = {"import jigsaw_opt": ("-c", "import jigsaw_opt"), "jigsaw --help": ("-m", "jigsaw_opt", "--help")}


def main() -> None:
    idle = _least_to_start(NOTHING)
    for name, arguments in STARTS.items():
        print(f"{name:<18} {_least_to_start(arguments) - idle:>5.3f} CPU s more than an idle Python")
    base = generate("cluster", 0)
    print(f"{'jobs':>8} {'MB':>6} {'CPU s':>7}")
    for size in SIZES:
        jobs = tuple(replace(base.jobs[k % len(base.jobs)], name=f"job{k}") for k in range(size))
        document = encode_instance(replace(base, jobs=jobs))
        least = min(timed(partial(decode_instance, document))[1] for _ in range(5))
        print(f"{size:>8} {len(document) / 1e6:>6.1f} {least:>7.3f}")


def _least_to_start(arguments: tuple[str, ...]) -> float:
    """Return the least CPU seconds of ten runs: a loaded machine only ever adds."""
    command = [sys.executable, *arguments]
    run = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
    return min(timed(run)[1] for _ in range(10))


if __name__ == "__main__":
    main()
