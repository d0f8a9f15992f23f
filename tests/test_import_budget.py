"""Importing the package and asking for help cost next to nothing and load no engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINES = ("highspy", "matplotlib", "networkx", "numpy", "ortools", "plotly", "pulp", "ray", "rich", "torch", "msgspec")
MEASURE = """
import resource, sys
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = cpu()
{statement}
print(cpu() - before, *sorted(set({engines}) & set(sys.modules)))
"""
HELP = """
import contextlib, io
from jigsaw_opt.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
"""


@pytest.mark.parametrize(
    ("statement", "budget_s"), [("import jigsaw_opt", 0.060), (HELP, 0.100)], ids=["import", "help"]
)
def test_start_up_budget(statement: str, budget_s: float) -> None:
    program = MEASURE.format(statement=statement, engines=ENGINES)
    # The least of a few runs: a loaded machine only ever adds.
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(5)
    ]
    outcomes = [run.stdout.split() for run in runs]
    assert all(outcome[1:] == [] for outcome in outcomes)
    assert min(float(outcome[0]) for outcome in outcomes) <= budget_s


def test_a_method_without_a_search_imports_none() -> None:
    program = (
        "import sys, jigsaw_opt\n"
        "jigsaw_opt.solve\n"
        "rooms = ('search', 'phased', 'resolve', 'portfolio')\n"
        "print(*(room for room in rooms if f'jigsaw_opt.solvers.{room}' in sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.split() == []
