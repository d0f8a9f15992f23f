"""Programs that proofs are dual solutions of: another engine finds the same optimum."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_proof
from jigsaw_opt.instances import load
from jigsaw_opt.solvers.solve import solve
from tests.refusals import ends


@pytest.mark.parametrize("name", ["tiny/003", "tiny/006", "server/weighted-link-bound"])
def test_another_engine_finds_the_optimum_that_the_multipliers_prove(name: str, tmp_path: Path) -> None:
    highspy = pytest.importorskip("highspy")
    proof = solve(load(name), "greedy").bound_proof
    assert proof is not None
    save_proof(proof, tmp_path / "proof.json")
    for kind in ("mps", "lp"):
        path = tmp_path / f"dual.{kind}"
        words = ["export", name, "--proof", str(tmp_path / "proof.json"), "--to", kind, "-o", str(path)]
        assert main(words) == 0
        engine = highspy.Highs()
        engine.silent()
        assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
        engine.run()
        optimum = engine.getInfo().objective_function_value
        # Multipliers are rounded, and the bound is rounded up to an integer.
        assert proof.bound - 1 - 1e-6 * optimum <= optimum <= proof.bound * (1 + 1e-6)
        engine.ensureColwise()
        program = engine.getLp()
        starts, rows, values = (program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_)
        lines = path.with_suffix(".sol").read_text().splitlines()
        costs = [float(line.split()[1]) for line in lines if line.startswith("C")]
        duals = [float(line.split()[1]) for line in lines if line.startswith("R")]
        assert min(costs) >= 0
        assert min(duals) >= 0
        for k, cost in enumerate(program.col_cost_):
            used = sum(values[p] * duals[rows[p]] for p in range(starts[k], starts[k + 1]))
            assert used + costs[k] == pytest.approx(cost)
        sides = [*program.col_lower_, *program.row_lower_]
        stated = sum(a * b for a, b in zip([*costs, *duals], sides, strict=True))
        assert stated == pytest.approx(optimum, rel=1e-6)
        assert proof.bound - 1 < stated <= proof.bound + 1e-3


def test_a_proof_without_a_program_is_refused(tmp_path: Path) -> None:
    proof = solve(load("tiny/000"), "greedy").bound_proof
    assert proof is not None
    save_proof(proof, tmp_path / "proof.json")
    words = ["export", "tiny/000", "--proof", tmp_path / "proof.json", "--to", "mps", "-o"]
    ends("3: unsupported $.argument.kind", *words, tmp_path / "a.mps")
    ends("2: missing-option -o", *words, "-")
