"""The linear program of completion times that the multipliers of a proof are a dual solution of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import inf

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds.completions import row_sum
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.checking.require import require_right
from jigsaw_opt.errors import wrong_input
from jigsaw_opt.formulations.linear import Entries, ProgramBuilder
from jigsaw_opt.formulations.program_files import NamedProgram
from jigsaw_opt.problem.bound_proof import Argument, BoundProof
from jigsaw_opt.problem.instance import Instance


def dual_program(instance: Instance, proof: BoundProof) -> tuple[NamedProgram, bytes]:
    """Return the program of a right proof of the kind `completions`, and its dual solution as a file of HiGHS."""
    argument = right_argument(instance, proof, "completions", "dual solutions of a program")
    facts, jobs = Facts(instance), {job.name: job for job in instance.data_parallel_jobs}
    own = {name: each["completion"] for each in argument["completions"] for name in each["names"]}
    columns, builder = {name: k for k, name in enumerate(own)}, ProgramBuilder()
    builder.add_columns([float(jobs[name].weight) for name in own], [float(least) for least in own.values()])
    left, duals = {name: Fraction(jobs[name].weight) for name in own}, list[Fraction]()
    for single, multiplier in _single_rows(argument):
        row = row_sum(ProofStep(single, "$"), facts)
        # A power of two keeps the digits of the factors, and engines like those that are about 1.
        unit = 1 << sum(row.factors.values()).bit_length()
        values = [float(Fraction(factor, unit)) for factor in row.factors.values()]
        entries = Entries([0] * len(values), [columns[name] for name in row.factors], values)
        builder.add_rows(entries, [float(row.least / unit)], inf)
        duals.append(Fraction(multiplier * unit, argument["denominator"]))
        for name, factor in row.factors.items():
            left[name] -= Fraction(multiplier * factor, argument["denominator"])
    names, rows = [f"C{k}" for k in range(len(own))], [f"R{k}" for k in range(len(duals))]
    remarks = [f"a proof that no plan is better than {proof.bound} (jigsaw-opt, docs/proofs.md) is a dual solution"]
    remarks += [f"C{k}: completion time of job {json.dumps(name)}" for k, name in enumerate(own)]
    program = NamedProgram(builder.program(), "completions", names, rows, remarks)
    return program, _dual_solution(
        {names[k]: left[name] for name, k in columns.items()}, dict(zip(rows, duals, strict=True))
    )


def right_argument(instance: Instance, proof: BoundProof, kind: str, what: str) -> Argument:
    """Return the argument of a proof, or refuse one that is wrong, or whose kind is not the one that is `what`."""
    require_right(instance, proof)
    own = proof.argument["kind"]
    if own != kind:
        raise wrong_input(
            "$.argument.kind", f"is {own!r}; only proofs of the kind {kind!r} are {what}", code="unsupported"
        )
    return proof.argument


def _dual_solution(costs: Mapping[str, Fraction], duals: Mapping[str, Fraction]) -> bytes:
    """Return reduced costs of columns and multipliers of rows as a solution file of HiGHS."""
    lines = ["Model status", "Unknown", "", "# Primal solution values", "None", ""]
    lines += ["# Dual solution values", "Feasible"]
    for title, values in (("Columns", costs), ("Rows", duals)):
        lines += [f"# {title} {len(values)}", *(f"{name} {float(value)!r}" for name, value in values.items())]
    return "\n".join([*lines, "", "# Basis", "HiGHS v1", "None", ""]).encode("ascii")


def _single_rows(argument: Argument) -> Iterator[tuple[Argument, int]]:
    """Yield each inequality of an argument as one row of its kind with the multiplier 1, and its own multiplier."""
    for entry in argument["rows"]:
        if entry["kind"] == "pair":
            for *numbers, multiplier in entry["rows"]:
                yield {**entry, "rows": [[*numbers, 1]]}, multiplier
        elif entry["kind"] == "fragments":
            for each in entry["sets"]:
                yield {**entry, "sets": [{**each, "multiplier": 1}]}, each["multiplier"]
        else:
            for chain in entry["chains"]:
                more = list[str]()
                for each in chain["sets"]:
                    more += each["more"]
                    jobs = [
                        {**job, "names": names}
                        for job in entry["jobs"]
                        if (names := [name for name in job["names"] if name in more])
                    ]
                    sets = [{"more": [*more], "multiplier": 1}]
                    yield {**entry, "jobs": jobs, "chains": [{"sets": sets}]}, each["multiplier"]
