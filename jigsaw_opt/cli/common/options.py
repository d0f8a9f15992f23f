"""What several commands make of their arguments: checked plans, options of solves, and warnings of depth rules."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.text import counted, named

if TYPE_CHECKING:
    from jigsaw_opt.problem import Instance, Plan
    from jigsaw_opt.problem.bound_proof import BoundProof
    from jigsaw_opt.problem.measured.layers import LayerGraph
    from jigsaw_opt.solvers.options import Options


def warn_of_spb(rule: str | None, instance: Instance) -> None:
    """Warn of a depth rule that stops backward passes early, whatever progress is lost; None is no rule.

    Of goodput, tell what became of the jobs.
    """
    if rule == "goodput":
        jobs = instance.data_parallel_jobs
        full = sum(job.depth.rule == "full" for job in jobs)
        unknown = sum(instance.models[job.model].efficiency is None for job in jobs)
        partial = f"{counted(len(jobs) - full, 'job')} may train partially"
        note(f"depth rule goodput: {partial}, {full:,} at full depth, {unknown:,} of them without an efficiency")
    _warn("depth rule", [rule] if rule and rule not in ("full", "goodput") else [])


def warn_of_raw(models: Sequence[str]) -> None:
    """Warn of models whose iterations below full depth a simulation counted as whole ones, if there are any."""
    from jigsaw_opt.simulation.results.metrics import raw_told

    if raw := raw_told(models):
        note(raw)


def warn_of_levels(instance: Instance, plan: Plan) -> None:
    """Warn of the jobs of a plan in which some level is below the deepest."""

    deepest = {job.name: instance.models[job.model].depth for job in instance.data_parallel_jobs}
    bent = (
        job.name
        for _, _, phase in plan.all_phases()
        for job in phase.data_parallel_jobs
        if any(level < deepest[job.name] for levels in job.levels for level in levels)
    )
    _warn("levels below the deepest of job", list(dict.fromkeys(bent)))


def _warn(subject: str, bent: Sequence[str]) -> None:
    if bent:
        why = "workers stop backward passes early, so accuracy may fall; see docs/training-loop.md"
        note(f"{subject} {named(bent)}: {why}")


def effort(arguments: Namespace, **others: Any) -> Options:
    """Return the options of a solve, of what was given: limits, seed and threads."""
    from jigsaw_opt.solvers.options import Options

    threads = {"threads": arguments.threads} if arguments.threads is not None else {}
    names = [name for name in ("time_limit", "work_limit", "seed") if name not in others]
    given = {name: getattr(arguments, name) for name in names}
    return Options(**{**given, **threads, **others})


def instance_and_plan(arguments: Namespace) -> tuple[Instance, Plan]:
    """Return the instance and the plan that a command was given."""
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from

    return instance_from(arguments.instance), load_plan(arguments.plan)


def checked_plan(source: str, plan_path: Path) -> tuple[Instance, Plan]:
    """Return an instance, and a plan for it that passes the check."""
    from jigsaw_opt.checking.require import require_correct
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from

    instance, plan = instance_from(source), load_plan(plan_path)
    require_correct(instance, plan, str(plan_path), f"; all with: jigsaw check {source} {plan_path}")
    return instance, plan


def given_proof(arguments: Namespace) -> BoundProof | None:
    """Return the proof that a command was given by ``--proof``, not checked yet; None where it was given none."""
    from jigsaw_opt.documents import load_proof

    return None if arguments.proof is None else load_proof(arguments.proof)


def layer_graph(data: bytes, source: str, gpu_type: str | None) -> LayerGraph:
    """Return the layers that a text states, as `read_layers` does, and tell which sizes it does not know."""
    from jigsaw_opt.documents import read_layers

    graph = read_layers(data, source, gpu_type)
    if unknown := sum(layer.output_bytes is None for layer in graph.layers[:-1]):
        note(f"{source}: bytes sent behind {counted(unknown, 'layer')} are not known: those of activations count")
    return graph
