"""A lower bound of one's own: some job ends last, and no earlier than the makespan of any plan.

That jobs end no earlier than alone has an argument, which `solve` checks. There is no kind of argument for the rest.

Run it as it stands: ``python examples/own_bound.py``. A package registers its bound in its ``pyproject.toml``:

    [project.entry-points."jigsaw_opt.bounds"]
    last_job = "own_bound:LAST_JOB"

`register` writes what installing such a package writes, so that this one file is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.solvers.bounds import Bound, BoundBudget, BoundContext, Proof, Relaxation, Term, lower_bound


def bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Every job ends no earlier than alone, and the one that ends last waits for the bound on the makespan."""
    makespan = lower_bound(replace(context.operations, objective="makespan"))
    alone = sum(data.job.weight * data.completion for data in context.job_data)
    facts = [{"names": [data.job.name], "completion": data.completion} for data in context.job_data]
    argument = {"kind": "completions", "completions": facts, "denominator": 1, "rows": []}
    yield Bound(alone, Proof("every job ends no earlier than alone", argument=argument))
    waits = [(data.job.weight, max(0, makespan.value - data.completion), data.job.name) for data in context.job_data]
    weight, wait, name = min(waits, key=lambda each: each[0] * each[1])
    value = alone + weight * wait
    proof = Proof(
        sentence=f"some job ends last, not before what follows from: {makespan.reason}",
        arithmetic=f"{alone} + {weight} * {wait} = {value}",
        terms=(
            Term("all jobs alone", alone, "weight * us"),
            Term("weight", weight, "", (name,)),
            Term("wait", wait, "us", (name,)),
        ),
        jobs=(name, *makespan.proof.jobs),
        servers=makespan.proof.servers,
        links=makespan.proof.links,
    )
    yield Bound(value, proof)


LAST_JOB = Relaxation("last_job", bounds, frozenset({"weighted_completion"}), instant=True)


def register(site: Path) -> None:
    """Make this file known as an installed package would be."""
    record = site / "own_bound-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: own-bound\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[jigsaw_opt.bounds]\nlast_job = own_bound:LAST_JOB\n")
    sys.path.append(str(site))


def compare(instance: Instance) -> None:
    """Print the bound of an instance without the one of our own, then with it."""
    for without in ((LAST_JOB.name,), ()):
        bound = lower_bound(compile_instance(instance), without)
        print(f"{bound.value} by {bound.proof.relaxation}: {bound.proof.arithmetic} ({bound.reason})")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        register(Path(folder))
        compare(generate("server", 21))
