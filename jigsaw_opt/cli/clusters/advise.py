"""What another policy would save on a workload, and which settings matter most."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.clusters.simulate_setting import SETTING, given_parts
from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.options import warn_of_raw
from jigsaw_opt.cli.common.output import ended, flush, goes_on_from, note, print_table, tell
from jigsaw_opt.cli.common.parser import whole_numbers
from jigsaw_opt.cli.common.progress import came_to, engine_arguments, engine_of, reporter
from jigsaw_opt.text import json_text

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.calls import PolicyAdvice

EXAMPLE = "jigsaw advise week --cluster 8x4 -o advice"
_SHOWN = (
    "mean_completion_h",
    "p95_completion_h",
    "mean_waiting_h",
    "cluster_efficiency",
    "worst_fairness",
    "gpu_hours",
)
ARGUMENTS: Arguments = {
    "workload [FORMAT:]FILE": "a workload in CSV, or a trace in a format of others (philly, itp, ...)",
    **SETTING,
    "--baseline NAME[:OPTION=VALUE...]": "what to compare with: the policy in use now, or recorded, what the trace"
    " says happened (default: recorded where the trace tells all starts and ends, else fifo)",
    "--policy NAME[:OPTION=VALUE...] ...": "policies to compare with it (default: all that work with the workload)",
    "--seeds NUMBERS": "seeds of draws (default: 0,1,2; 0 where nothing is drawn)",
    "--measure NAME = mean_completion_h": "measure that ranks the policies",
    **engine_arguments("simulations"),
    "-o, --output DIR !": "folder for rows and page",
    "--json": "print all figures as JSON",
    "-q, --quiet": "no progress",
}


def run(arguments: argparse.Namespace) -> int:
    """Simulate what has no row yet, write the page, print the answer; a signal meanwhile skips the rest."""
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.calls import DOCUMENT, PAGE, advise
    from jigsaw_opt.sweeps.folder import ROWS
    from jigsaw_opt.views.sweep_page import advice_html

    folder, cancel = arguments.output, Event()
    goes_on_from(folder / ROWS)
    found = advise(
        arguments.workload,
        policies=arguments.policy,
        baseline=arguments.baseline,
        seeds=None if arguments.seeds is None else whole_numbers("--seeds", arguments.seeds, "whole numbers"),
        measure=arguments.measure,
        folder=folder,
        engine=engine_of(arguments),
        report=reporter(arguments, _line),
        tell=note,
        cancel=cancel,
        **given_parts(arguments),
    )
    advice, document = found.advice, found.document
    warn_of_raw(advice.raw_models)
    for name, text in ((PAGE, advice_html(document)), (DOCUMENT, json_text(document, indent=2) + "\n")):
        write_atomically(folder / name, text.encode())
    tell(arguments.json, document, lambda: _print(found))
    note(f"wrote {folder}/{ROWS}, {PAGE}, {DOCUMENT}")
    flush()
    kept = f"{advice.finished} of {advice.runs} simulations are kept in {folder / ROWS}; the same command goes on"
    return ended(cancel.is_set() and advice.finished < advice.runs, kept)


def _line(row: Mapping[str, Any]) -> str:
    words = f"round {row['round_s']:g} restart {row['restart_s']:g} {row['contention']}"
    return f"{row['policy']} {words} seed {row['seed']}: {came_to(row)}"


def _print(found: PolicyAdvice) -> None:
    from jigsaw_opt.simulation.results.metrics import with_efficiency
    from jigsaw_opt.sweeps.advice_words import in_percent, settings_that_matter, with_knowledge

    print(f"{found}\n")
    advice, document, rows = found.advice, found.document, []
    for policy in advice.policies:
        change = policy.change.get(advice.measure)
        told = "today" if policy.policy == advice.today else policy.error if change is None else in_percent(change)
        figures = (policy.figures.get(name) for name in _SHOWN)
        shown = (None if one is None else f"{one.mean:.4g}" for one in figures)
        rows.append((with_knowledge(policy.policy), len(policy.seeds), *shown, told))
    heads = tuple(with_efficiency(name, document["request"]["efficiency"], advice.raw_models) for name in _SHOWN)
    print_table(("policy", "seeds", *heads, f"change of {advice.measure}"), rows, ("seeds", *heads))
    tables = {
        ("setting", "from", "to", "", f"change of {advice.measure}"): [
            (one.setting, one.before, one.after, "choice" if one.chosen else "assumption", in_percent(one.percent))
            for one in settings_that_matter(advice)
        ],
        ("assumed", ""): list(document["assumed"].items()),
        ("left out", ""): list(advice.left_out.items()),
    }
    for headers, cells in tables.items():
        if cells or headers[0] != "left out":
            print()
            print_table(headers, cells)
