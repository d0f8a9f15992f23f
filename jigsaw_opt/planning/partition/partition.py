"""The partition of a model as an instance: PipeDream's steady state with its stages."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from jigsaw_opt.arguments import typed
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.partition.costs import Variant
from jigsaw_opt.planning.partition.result import Partition, best_partition
from jigsaw_opt.planning.pipeline.asynchronous import asynchronous
from jigsaw_opt.planning.pipeline.costs import async_stages
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import require_options


@typed
def partition(
    graph: LayerGraph,
    machines: Sequence[int],
    bandwidth: Sequence[float],
    options: Options | None = None,
    *,
    variant: Variant = "released",
    activations: bool = False,
    replicate: bool = True,
    memory: int | None = None,
) -> Planned[Partition]:
    """Cut a model into the stages of a pipeline so that the slowest takes least time.

    Parameters
    ----------
    graph
        The layers.
    machines
        GPUs of a server, servers of a rack, and so on; ``(8,)`` for one server.
    bandwidth
        Bytes per second on each level of machines.
    options
        Its time limit and its cancel end the search; nothing else is used.
    variant
        Costs of PipeDream's released optimiser, or of its paper.
    activations
        Whether outputs sent between stages are paid for; in the paper's costs they always are.
    replicate
        Whether a stage may be on several machines.
    memory
        Bytes of a GPU; None for no limit. Minibatches in flight each keep a version of the weights and activations;
        gradients and optimiser state are there once.

    Returns
    -------
    Planned
        PipeDream's steady state, whose period has so many minibatches that all copies take equally many; its bound is
        of such a period. Its details are the stages with their GPUs, which `pipeline` takes.

    Raises
    ------
    UsageError
        The graph can be cut in too many ways, is in several parts, or the machines make no sense.
    InfeasibleError
        No partition keeps the memory, or there are fewer layers than machines without replication.
    OutOfTimeError
        The search took longer than its limit.
    """
    options = options or Options()
    require_options(Limits, options, "partition")
    with clock.limited(clock.Clock(options.time_limit, options.cancel)):
        found = best_partition(
            graph, machines, bandwidth, variant=variant, activations=activations, replicate=replicate, memory=memory
        )
    flow = asynchronous(async_stages(found), "partition")
    count, least_us = flow.details.minibatches, found.time_s * 1e6
    # A nanosecond less, for an error of floating point; stages are rounded up with it, too.
    bound = max(1, ceil(count * (least_us - 1e-3)))
    sentence = "no stages of the layers on these machines have a slowest one that is faster: all were compared"
    proof = Proof(sentence, f"ceil({count} * {least_us:.3f}) = {bound}", relaxation="partition")
    return Planned(flow.instance, flow.plan, bound, proof, found)
