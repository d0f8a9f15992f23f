"""Plan a burst in one call: of costs of layers, or of profiles that they follow from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts
from jigsaw_opt.documents.readers.profiles.deeppool import ProfiledLayer
from jigsaw_opt.errors import UsageError, argument, missing_option, not_together
from jigsaw_opt.planning.burst.exact import fastest_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.planning.burst.plan import BurstPlan, BurstVariant
from jigsaw_opt.planning.burst.profiled import BurstSetting, measured_costs, profiled_costs
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

_ROUNDING_US = 3
"""By so much, at most, a layer of the instance is shorter than its costs: two moves and two passes are rounded by half
a microsecond each, and the exchange by one."""


@typed
def burst(
    source: BurstCosts | Sequence[LayerGraph] | Mapping[int, Sequence[ProfiledLayer]],
    options: Options | None = None,
    *,
    gpus: int | None = None,
    global_batch: int | None = None,
    bandwidth: float | None = None,
    limit: float = 2.0,
    variant: BurstVariant = "exact",
    horizon: Horizon = "finite",
) -> Planned[BurstPlan]:
    """Choose how many GPUs each layer of a job gets.

    Parameters
    ----------
    source
        Costs of the layers by number of GPUs; layer profiles of several batch sizes; or the runs of DeepPool's profile.
    options
        Limits, seed and threads of the solve that times the instance.
    gpus, global_batch, bandwidth
        What profiles do not state, and costs do: GPUs that the job may use, samples of an iteration on all of them
        together, and bytes per microsecond of a GPU's network.
    limit
        Limit of amplification: GPU time over the time on one GPU.
    variant
        ``exact``: the fastest plan whose layers all keep the limit; ``budget``: the fastest one whose GPU time as a
        whole keeps it.
    horizon
        Horizon of the instance.

    Returns
    -------
    Planned
        The instance of the job and a plan of it, whose times are rounded to microseconds. Its details are the GPUs of
        each layer, with what they cost.

    Raises
    ------
    UsageError
        Costs with a batch, profiles without one, or profiles that are not of the same layers.
    InfeasibleError
        No plan keeps the limit.
    """
    costs = _costs(source, gpus, global_batch, bandwidth)
    chosen = fastest_plan(costs, limit, variant)
    bound = max(1, ceil(chosen.iteration_us - _ROUNDING_US * len(costs.layers) - 1e-6))
    instance = burst_instance(chosen, "burst", horizon)
    sentence = "no path through the options of the layers is faster, and rounding to microseconds gains no more"
    arithmetic = f"ceil({chosen.iteration_us:.3f} - {_ROUNDING_US} * {len(costs.layers)}) = {bound}"
    proof = Proof(sentence, arithmetic, relaxation="burst")
    return Planned(instance, solve(instance, "greedy", options).plan, bound, proof, chosen)


def _costs(
    source: BurstCosts | Sequence[LayerGraph] | Mapping[int, Sequence[ProfiledLayer]],
    gpus: int | None,
    global_batch: int | None,
    bandwidth: float | None,
) -> BurstCosts:
    asked = [argument("gpus"), argument("global_batch"), argument("bandwidth")]
    if isinstance(source, BurstCosts):
        if (gpus, global_batch, bandwidth) != (None, None, None):
            raise not_together("gpus", f"costs state GPUs, batch and rates; leave out {', '.join(asked)}")
        return source
    if gpus is None or global_batch is None or bandwidth is None:
        raise missing_option("gpus", f"a profile needs {', '.join(asked)}")
    if not source:
        raise UsageError("a burst is of at least one profile", code="empty", path="source")
    setting = BurstSetting(gpus, global_batch, bandwidth)
    return profiled_costs(source, setting) if isinstance(source, Mapping) else measured_costs(source, setting)
