"""A client of Slurm, its report, and what gives its jobs back."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import ended, note, print_json, print_table
from jigsaw_opt.errors import missing_option, not_together

if TYPE_CHECKING:
    from jigsaw_opt.problem.cluster import Cluster
    from jigsaw_opt.serving.slurm.scheduler import SchedulerBackend

EXAMPLE = "jigsaw slurm --policy backfill:kind=conservative:reserve=servers:placement=consolidated --log slurm.jsonl"
ARGUMENTS: Arguments = {
    "[what] watch|report|give-back": {
        "help": "watch a Slurm cluster (reads all options but --after and --json), report on a log day by day (--log,"
        " --json), or release the held jobs of a client that is dead (--log, --after)",
        "default": "watch",
    },
    "[file] LOG": {"help": "the log, as with --log", "type": Path},
    "--log FILE = slurm.jsonl": {"help": "log of the client, as JSON lines", "type": Path},
    "--act": "release held jobs where the policy puts them; without it nothing is sent to Slurm",
    "--url URL": "a running jigsaw serve decides, as in http://127.0.0.1:8440, in place of a policy in this process",
    "--token-file FILE": {"help": "with --url: a file that holds the token alone", "type": Path},
    "--policy NAME[:OPTION=VALUE...]": "who decides (default: what Slurm does by itself)",
    "--partition NAME": {"help": "only jobs of this partition", "default": ""},
    "--comment WORDS": {"help": "only jobs with these words in their comment", "default": ""},
    "--preempt": "with --act: stop jobs that may be requeued where the policy stops them",
    "--every SECONDS = 10": "time between two looks",
    "--patience SECONDS = 120": "a released job that does not run after so long is held again",
    "--once": "look once",
    "--after SECONDS = 600": "give-back: a client that wrote nothing for so long is dead",
    "--json": "report: print all figures as JSON",
}
_READ_BY: Mapping[str, Mapping[str, object]] = {
    "watch": {"act": False, "url": None, "token_file": None, "policy": None, "partition": "", "comment": ""}
    | {"preempt": False, "every": 10.0, "patience": 120.0, "once": False},
    "give-back": {"after": 600.0},
    "report": {"json": False},
}
"""The options that one action alone reads, with their defaults."""
_US = 1_000_000
_SHOWN = (
    *("day", "predictions", "median_error_s", "mean_error_s", "inside_interval", "started"),
    *("slurm_mean_wait_s", "policy_mean_wait_s", "slurm_use", "policy_use"),
)
"""Measures of a day, the errors of its own predictions first."""


def run(arguments: argparse.Namespace) -> int:
    """Watch until a signal comes, or do what was asked for."""
    arguments.log = arguments.file or arguments.log
    if arguments.preempt and not arguments.act:
        raise missing_option("preempt", "--preempt stops jobs, and nothing is stopped without --act")
    for what, default in _READ_BY.items():
        for name, value in default.items() if what != arguments.what else ():
            if getattr(arguments, name) != value:
                raise not_together(name, f"{arguments.what} does not read --{name.replace('_', '-')}: {what} does")
    if arguments.what == "report":
        return _report(arguments)
    return _give_back(arguments) if arguments.what == "give-back" else _watch(arguments)


def _now_us() -> int:
    return time.time_ns() // 1000


def _watch(arguments: argparse.Namespace) -> int:
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.scheduling import LiveScheduler
    from jigsaw_opt.serving.slurm.client import DEFAULT_POLICY, ClientSetting, SlurmClient
    from jigsaw_opt.serving.slurm.commands import SlurmError, run_command
    from jigsaw_opt.serving.slurm.log import ClientLog
    from jigsaw_opt.serving.slurm.scheduler import LocalScheduler, ServedScheduler
    from jigsaw_opt.system.interrupts import on_interrupt

    policy, patience_us = arguments.policy or DEFAULT_POLICY, round(arguments.patience * _US)
    chosen = (arguments.act, arguments.partition, arguments.comment, arguments.preempt, patience_us, policy)
    times_us = {"round_us": round(arguments.every * _US), "restart_us": 0}
    stop, answered = Event(), True
    token = read_text(arguments.token_file).decode().strip() if arguments.token_file else ""

    def connect(cluster: Cluster) -> SchedulerBackend:
        if arguments.url:
            return ServedScheduler(arguments.url, token, cluster, not arguments.act)
        return LocalScheduler(LiveScheduler(cluster, policy, **times_us), not arguments.act)

    with ClientLog(arguments.log) as log, on_interrupt(stop.set):
        client = SlurmClient(
            run_command,
            log,
            connect,
            ClientSetting(*chosen),
            _now_us,
        )
        note(f"{'acts' if arguments.act else 'shadow: nothing is sent to Slurm'}; log: {arguments.log}")
        while not stop.is_set():
            began_s, answered = time.monotonic(), client.poll()
            if arguments.once:
                break
            stop.wait(max(0.0, began_s + arguments.every - time.monotonic()))
    if not answered and arguments.once:
        raise SlurmError(f"Slurm or the service does not answer; see {arguments.log}")
    return ended(stop.is_set(), f"the log {arguments.log} is kept, and the same command goes on")


def _report(arguments: argparse.Namespace) -> int:
    from jigsaw_opt.serving.slurm.report import report

    found = report(arguments.log)
    if arguments.json:
        print_json(found)
        return 0
    policy = f"{found['policy']} on {found['gpus']} GPUs of {found['nodes']} nodes"
    print(f"{found['jobs']} jobs, of which {found['jobs_that_wait']} wait and {found['jobs_that_run']} run; {policy}")
    rows = ([_cell(name, day[name]) for name in _SHOWN] for day in found["days"])
    print_table([name.replace("_", " ") for name in _SHOWN], rows)
    return 0


def _cell(name: str, value: object) -> object:
    if isinstance(value, float):
        return f"{value:.0f}" if name.endswith("_s") else f"{value:.0%}"
    return value


def _give_back(arguments: argparse.Namespace) -> int:
    from jigsaw_opt.serving.slurm.commands import SlurmError, run_command
    from jigsaw_opt.serving.slurm.give_back import give_back

    found = give_back(run_command, arguments.log, round(arguments.after * _US), _now_us())
    if found is None:
        note("the client lives, or never acted: nothing is given back")
        return 0
    note(f"given back to Slurm: {' '.join(found[0]) or 'none'}")
    if found[1]:
        raise SlurmError("; ".join(found[1]))
    return 0
