"""What a staircase takes of the device time of full depth: measured blocks beside the formula.

Run it as ``python benchmarks/staircase_saving.py``, with ``--device cuda`` where there is a GPU. On a CPU the time is
that of the thread. With the backward pass ``r`` times the forward pass and equal parts, a staircase of ``k`` workers
saves ``r (k - 1) / (2 k (1 + r))``: 25 % for ``r = 2``, ``k = 4``. It can save more, as the first layer of a suffix
needs no gradient of its input, and it saves less by what every block has whatever its level: the optimiser's step, the
drawing of a batch, the start of kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from common import print_table
from torch.utils.flop_counter import FlopCounterMode

from jigsaw_opt.executor.building import Replica, build_network
from jigsaw_opt.executor.building import replica as replica_of
from jigsaw_opt.executor.profiling import ModelProfile, profile_replica
from jigsaw_opt.executor.worker import TrainingRecipe
from jigsaw_opt.problem.costs import staircase

PARTS = 8
WORKERS = (2, 4, 8)


@dataclass(frozen=True)
class Case:
    """A model that is measured.

    Parameters
    ----------
    label
        What the table calls it.
    zoo, arguments, batch
        The network and the samples of a block.
    optimiser
        Whose step a block has.
    """

    label: str
    zoo: str
    arguments: Mapping[str, Any]
    batch: int
    optimiser: Literal["sgd", "adam"] = "sgd"

    def replica(self) -> Replica:
        """The model in equal parts, a layer each; the first also has what is before it, the last what is behind."""
        network = build_network(self.zoo, self.arguments)
        units = len(network.units)
        ahead = (units - PARTS) // 2
        return replica_of(network, (0, *range(ahead + 1, ahead + PARTS), units), self.batch)


def dense(width: int) -> Mapping[str, Any]:
    """Eight equal dense layers."""
    return {"inputs": width, "hidden": (width,) * (PARTS - 1), "classes": width}


def decoder(vocabulary: int) -> Mapping[str, Any]:
    """Eight decoder layers."""
    return {"layers": PARTS, "width": 128, "heads": 4, "rows": 64, "vocabulary": vocabulary}


CASES = (
    Case("dense, width 1024", "mlp", dense(1024), 512),
    Case("dense, width 1024, Adam", "mlp", dense(1024), 512, "adam"),
    Case("dense, width 512, small batch", "mlp", dense(512), 32),
    Case("dense, width 512, small batch, Adam", "mlp", dense(512), 32, "adam"),
    Case("dense, width 64", "mlp", dense(64), 32),
    Case("decoder, 256 tokens", "gpt", decoder(256), 16),
    Case("decoder, 256 tokens, Adam", "gpt", decoder(256), 16, "adam"),
    Case("decoder, 8192 tokens", "gpt", decoder(8192), 4),
)
QUICK = (replace(CASES[0], arguments=dense(16), batch=8),)


@dataclass(frozen=True)
class Saving:
    """Shares of the device time of full depth that a staircase saves.

    Parameters
    ----------
    workers
        Of the staircase.
    formula
        For a backward pass of twice the forward pass.
    own_formula
        For the measured ratio.
    operations
        By counted floating-point operations of the matrix products.
    measured
        By measured blocks.
    """

    workers: int
    formula: float
    own_formula: float
    operations: float
    measured: float


@dataclass(frozen=True)
class Found:
    """What was measured of a case.

    Parameters
    ----------
    case
        The case.
    ratio
        Time of the backward passes of the segments to that of the forward passes.
    step
        Share of the optimiser's step in a block at full depth.
    block_us
        Of a block at full depth.
    savings
        By number of workers.
    """

    case: Case
    ratio: float
    step: float
    block_us: float
    savings: Sequence[Saving] = field(default_factory=tuple)


def formula(ratio: float, workers: int) -> float:
    """Share saved where parts are equal and nothing but passes takes time."""
    return ratio * (workers - 1) / (2 * workers * (1 + ratio))


def saved(costs: Sequence[float], workers: int) -> float:
    """Share that a staircase saves where a block at each level has these costs."""
    return 1 - sum(costs[level - 1] for level in staircase(len(costs), workers)) / (workers * costs[-1])


def operations(replica: Replica) -> list[int]:
    """Floating-point operations of a block's matrix products at each level."""
    counts = []
    for level in range(1, replica.model.depth + 1):
        with FlopCounterMode(display=False) as counter:
            replica.model.backpropagate(replica.batch(0, 0, 0), level)
        counts.append(counter.get_total_flops())
    return counts


def measure(case: Case, device: torch.device, repeats: int) -> Found:
    """Count, then time, one case."""
    replica = case.replica()
    counted = operations(replica)
    recipe = TrainingRecipe(case.optimiser, {"lr": 1e-3})
    return found(case, counted, profile_replica(replica, recipe, device, warm_up=2, repeats=repeats))


def found(case: Case, counted: Sequence[int], measured: ModelProfile) -> Found:
    """What counts and times say."""
    blocks = [level.block.median for level in measured.levels]
    forward, backward = (sum(getattr(s, name).median for s in measured.segments) for name in ("forward", "backward"))
    step = sum(segment.step_us for segment in measured.segments)
    savings = tuple(
        Saving(w, formula(2, w), formula(backward / forward, w), saved(counted, w), saved(blocks, w)) for w in WORKERS
    )
    return Found(case, backward / forward, step / blocks[-1], blocks[-1], savings)


TITLES = (
    *("model", "batch", "block, ms", "backward : forward", "step", "workers"),
    *("formula, r = 2", "formula, own r", "operations", "measured"),
)


def rows(result: Found) -> list[Sequence[object]]:
    """A row for each number of workers."""
    case = result.case
    head = (case.label, case.batch, f"{result.block_us / 1000:.1f}", f"{result.ratio:.2f}", f"{result.step:.1%}")
    return [
        [*head, s.workers, *map("{:.1%}".format, (s.formula, s.own_formula, s.operations, s.measured))]
        for s in result.savings
    ]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="one tiny model, which shows nothing")
    asked = parser.parse_args(given)
    torch.set_num_threads(1)
    device, cases = torch.device(asked.device), QUICK if asked.quick else CASES
    print_table(TITLES, (row for case in cases for row in rows(measure(case, device, asked.repeats))))


if __name__ == "__main__":
    main()
