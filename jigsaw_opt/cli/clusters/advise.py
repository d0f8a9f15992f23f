"""What another policy would save on a workload, and which settings matter most."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.clusters.simulate_setting import configure_setting, request_of, seeds_of, tell_reading
from jigsaw_opt.cli.common.options import warn_of_policies
from jigsaw_opt.cli.common.output import ended, flush, goes_on_from, note, print_json, print_table
from jigsaw_opt.cli.common.sweeping import configure_engine, engine_of, reporter
from jigsaw_opt.errors import out_of_range
from jigsaw_opt.system.interrupts import interrupt_flag
from jigsaw_opt.text import json_text

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.advice import Advice, Advisor

EXAMPLE = "jigsaw advise week --cluster 8x4 -o advice"
_ROWS, _PAGE, _DOCUMENT = "rows.jsonl", "advice.html", "advice.json"
_COMPARING = 0.6
_SHOWN = (
    "mean_completion_h",
    "p95_completion_h",
    "mean_waiting_h",
    "cluster_efficiency",
    "worst_fairness",
    "gpu_hours",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "workload",
        metavar="[FORMAT:]FILE",
        help="a workload in CSV, or a trace in a format of others (philly, itp, ...)",
    )
    configure_setting(parser)
    parser.add_argument(
        "--baseline",
        metavar="NAME[:OPTION=VALUE...]",
        help="what to compare with: the policy in use now, or recorded, what the trace says happened "
        "(default: recorded where the trace tells all starts and ends, else fifo)",
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        action="extend",
        metavar="NAME[:OPTION=VALUE...]",
        help="policies to compare with it (default: all that work with the workload)",
    )
    parser.add_argument("--seeds", metavar="NUMBERS", help="seeds of draws (default: 0,1,2; 0 where nothing is drawn)")
    parser.add_argument(
        "--measure",
        default="mean_completion_h",
        metavar="NAME",
        help="measure that ranks the policies (default: mean_completion_h)",
    )
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="start nothing after this; tell what is there"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="simulations at once, on this machine (default: 1)")
    configure_engine(parser)
    parser.set_defaults(threads=1)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder for rows and page")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Simulate what has no row yet, write the page, print the answer; a signal meanwhile skips the rest."""
    from jigsaw_opt.documents import make_folder, require_writable
    from jigsaw_opt.sweeps.advice import Advisor
    from jigsaw_opt.sweeps.record import Record
    from jigsaw_opt.sweeps.simulations import is_row

    folder, limit_s = arguments.output, _limit_s(arguments.time_limit)
    began = time.monotonic()
    require_writable(folder / _PAGE)
    goes_on_from(folder / _ROWS)
    base = request_of(arguments, workload=arguments.workload)
    advisor = Advisor(base, arguments.baseline, arguments.policy, _seeds(arguments.seeds), arguments.measure)
    tell_reading(advisor.compared())
    engine, report = engine_of(arguments), reporter(arguments, _line)
    make_folder(folder, (_PAGE, _DOCUMENT), base.files)
    with interrupt_flag() as interrupted, Record(folder / _ROWS, is_row) as record:

        def left_s(share: float = 1.0) -> float:
            return share * limit_s - (time.monotonic() - began)

        for share in (_COMPARING, 1.0):
            if share < 1.0 or not advisor.has_compared(record):
                advisor.compare(record, engine, report, interrupted, partial(left_s, share), arguments.jobs or 1)
        if advisor.has_compared(record) and not interrupted():
            advisor.vary(record, engine, report, lambda: interrupted() or left_s() <= 0)
        advice = advisor.advice(record)
        warn_of_policies(advisor.policies)
        _tell(arguments, advisor, advice)
        was_interrupted = interrupted() and advice.finished < advice.runs
    kept = f"{advice.finished} of {advice.runs} simulations are kept in {folder / _ROWS}; the same command goes on"
    if advice.finished < advice.runs and not was_interrupted:
        note(f"the time is over: {kept}")
    return ended(was_interrupted, kept)


def _seeds(text: str | None) -> Sequence[int] | None:
    return None if text is None else seeds_of(text)


def _limit_s(seconds: float | None) -> float:
    if seconds is not None and not seconds > 0:
        raise out_of_range("--time-limit", f"--time-limit is a number of seconds above 0, not {seconds}")
    return math.inf if seconds is None else seconds


def _line(row: Mapping[str, Any]) -> str:
    came = row["error"] or f"mean completion {row['mean_completion_h']:.3f} h in {row['seconds']:.1f} s"
    words = f"round {row['round_s']:g} restart {row['restart_s']:g} {row['contention']}"
    return f"{row['policy']} {words} seed {row['seed']}: {came}"


def _tell(arguments: argparse.Namespace, advisor: Advisor, advice: Advice) -> None:
    from jigsaw_opt.documents import write_atomically
    from jigsaw_opt.sweeps.advice_words import advice_document
    from jigsaw_opt.views.sweep_page import advice_html

    document = advice_document(advisor, advice)
    for name, text in ((_PAGE, advice_html(document)), (_DOCUMENT, json_text(document, indent=2) + "\n")):
        write_atomically(arguments.output / name, text.encode())
    if arguments.json:
        print_json(document)
    else:
        _print(advisor, advice)
    note(f"wrote {arguments.output}/{_ROWS}, {_PAGE}, {_DOCUMENT}")
    flush()


def _print(advisor: Advisor, advice: Advice) -> None:
    from jigsaw_opt.sweeps.advice_words import (
        assumed,
        calibration,
        headline,
        in_percent,
        longest_waits,
        settings_that_matter,
        who_loses,
        with_knowledge,
    )

    if told := calibration(advisor, advice):
        print(told)
    print("\n".join((" ".join(filter(None, (headline(advice), longest_waits(advice)))), *who_loses(advice))) + "\n")
    rows = []
    for policy in advice.policies:
        change = policy.change.get(advice.measure)
        told = "today" if policy.policy == advice.today else policy.error if change is None else in_percent(change)
        figures = (policy.figures.get(name) for name in _SHOWN)
        shown = (None if one is None else f"{one.mean:.4g}" for one in figures)
        rows.append((with_knowledge(policy.policy), len(policy.seeds), *shown, told))
    print_table(("policy", "seeds", *_SHOWN, f"change of {advice.measure}"), rows, ("seeds", *_SHOWN))
    print()
    effects = (
        (effect.setting, effect.before, effect.after, _kind(effect.chosen), in_percent(effect.percent))
        for effect in settings_that_matter(advice)
    )
    print_table(("setting", "from", "to", "", f"change of {advice.measure}"), effects)
    print()
    print_table(("assumed", ""), assumed(advisor, advice).items())
    if advice.left_out:
        print()
        print_table(("left out", ""), advice.left_out.items())


def _kind(chosen: bool) -> str:
    return "choice" if chosen else "assumption"
