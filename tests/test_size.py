"""Size: the code lines of each room have a ceiling, so that what adds lines takes lines away."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
CODE = {
    "checking": (4_020, "every rule of the specification from its definition alone, twice where a phase differs"),
    "cli": (3_966, "29 commands, each with its options, and what they print"),
    "documents": (5_916, "JSON in and out with the path of each problem, and 40 formats of other systems"),
    "executor": (7_908, "models, exchange, ways of partial training, pipelines, profiles and replay with PyTorch"),
    "formulations": (3_971, "the ILP, the CP-SAT models, and the programs of Gavel, Sia, Muri and packing"),
    "instances": (2_383, "families, bundled sets and best known values"),
    "planning": (6_327, "partition, pipelines, burst, fill, shifts and objective over progress, each with its bound"),
    "problem": (3_911, "what there is: clusters, models, jobs, plans, workloads and their exact costs"),
    "routing": (350, "routes round failures, and what they deliver"),
    "scheduling": (6_772, "policies and their placement, performance models, the live scheduler"),
    "serving": (2_426, "the HTTP service over a live scheduler, what it keeps, its page, and a client of Slurm"),
    "simulation": (3_212, "inputs, engine, prediction and results"),
    "solvers": (21_534, "bounds, generators, searches, exact engines, explanations, sessions: the largest"),
    "sweeps": (1_775, "parallel runs that survive a kill, and the bench"),
    "system": (552, "files, clocks, signals, processes, and code of others"),
    "views": (1_835, "pictures, HTML pages and their words, and the formats of other programs"),
    "": (668, "the facade, errors, types of arguments, and words"),
}
"""By room, most lines of code (without blanks, comments and docstrings), and what takes them."""
LINES = {
    "jigsaw_opt": (115_350, "all lines of all rooms"),
    "tests": (63_850, "oracles and referees of their own, and a test for every rule, code and page"),
    "benchmarks": (13_500, "what is compared with others or with an earlier version, side by side"),
}
"""By folder, most lines of Python, and what takes them."""


def code_lines(text: str) -> int:
    """Count lines that are neither blank nor a comment nor part of a docstring."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, int(node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_what_counts_as_a_line_of_code() -> None:
    text = (
        '"""Module."""\n\nimport os  # why\n\n\ndef f():\n    """Say\n\n    more.\n    """\n    # why\n    return os\n'
    )
    assert code_lines(text) == 3


def test_no_room_is_larger_than_its_ceiling() -> None:
    package = ROOT / "jigsaw_opt"
    sizes: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).parts
        sizes[parts[0] if len(parts) > 1 else ""] += code_lines(path.read_text())
    assert sizes.keys() == CODE.keys()
    assert {room: size for room, size in sizes.items() if size > CODE[room][0]} == {}
    # A ceiling far above its room holds nothing: whoever takes lines away lowers it.
    assert {room: size for room, size in sizes.items() if size < 0.95 * CODE[room][0]} == {}


def test_no_folder_is_larger_than_its_ceiling() -> None:
    sizes = {name: sum(p.read_text().count("\n") for p in (ROOT / name).rglob("*.py")) for name in LINES}
    assert {name: size for name, size in sizes.items() if size > LINES[name][0]} == {}
    assert {name: size for name, size in sizes.items() if size < 0.95 * LINES[name][0]} == {}
