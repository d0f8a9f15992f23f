"""CPU seconds to decode instance documents of growing size. Run ``python benchmarks/load_speed.py``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from common import timed

from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.instances import generate

SIZES = (8_000, 16_000, 32_500, 65_000)


def main() -> None:
    base = generate("cluster", 0)
    print(f"{'jobs':>8} {'MB':>6} {'CPU s':>7}")
    for size in SIZES:
        jobs = tuple(replace(base.jobs[k % len(base.jobs)], name=f"job{k}") for k in range(size))
        document = encode_instance(replace(base, jobs=jobs))
        least = min(timed(partial(decode_instance, document))[1] for _ in range(5))
        print(f"{size:>8} {len(document) / 1e6:>6.1f} {least:>7.3f}")


if __name__ == "__main__":
    main()
