"""Answer programs of a cluster over HTTP: events in, changes of the plan out, all of it kept in a file."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from ipaddress import ip_address
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.clusters.simulate_setting import setting_arguments
from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import note
from jigsaw_opt.errors import JigsawError, argument, missing_option

if TYPE_CHECKING:
    from jigsaw_opt.problem.workload import TraceJob
    from jigsaw_opt.serving.service import Service
    from jigsaw_opt.serving.tokens import Tokens

EXAMPLE = "jigsaw serve 16x8:a100 --database cluster.db"
ARGUMENTS: Arguments = {
    "[cluster] SERVERSxGPUS:TYPE|FILE|NAME": "as in 16x4:v100, or the cluster and the models of an instance; --demo"
    " needs none",
    "--policy NAME[:OPTION=VALUE...]": "who decides, as in backfill (default: jigsaw with an instance, or else fifo)",
    **setting_arguments("performance", "speeds", "round", "restart"),
    "--seed N = 0": "seed of draws",
    "--moves-per-hour N": "most jobs that run which the policy stops or moves in any hour (default: no limit)",
    "--fall-back N = 0": "late or failed steps in a row after which fifo decides; 0: never",
    "--database FILE": "where journal, snapshots, changes and stories are kept (default: jigsaw-serve.db)",
    "--host ADDRESS = 127.0.0.1": "where to listen; another than this machine's own needs --tokens",
    "--port N = 8440": "port; 0: one that is free, which is told",
    "--tokens FILE": "who may do what: an object of token, name and role (read, submit, operate) a line",
    "--shadow": "only tell what it would do; what runs changes by reports alone",
    "--demo": "play a bundled trace, 120 times as fast as time goes: open the page; without --database nothing is kept",
    "--step-budget SECONDS = 0.1": "how long events wait for the policy",
}


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal asks for the end; then save the state."""
    from jigsaw_opt.serving import require_serve

    require_serve()
    from jigsaw_opt.scheduling.plain import check_arguments, number
    from jigsaw_opt.serving import demo
    from jigsaw_opt.serving.arguments import recorded, scheduler_of
    from jigsaw_opt.serving.journal_store import JournalStore
    from jigsaw_opt.serving.service import Service, ServiceLimits
    from jigsaw_opt.serving.tokens import read_tokens
    from jigsaw_opt.simulation.inputs.cluster_files import read_cluster

    check_arguments(**{argument("step_budget"): (arguments.step_budget, number(0, 60))})
    tokens = None if arguments.tokens is None else read_tokens(arguments.tokens)
    _require_tokens(arguments.host, tokens)
    words = arguments.cluster or (demo.CLUSTER if arguments.demo else "")
    if not words:
        raise missing_option("cluster", "a cluster is needed, as in jigsaw serve 16x8:a100, or --demo")
    cluster, models = read_cluster(words)
    if arguments.demo and models is None:
        models = demo.models_for(cluster)
    times = {"round_us": arguments.round_s, "restart_us": arguments.restart_s}
    given: dict[str, Any] = {name: round(value * 1_000_000) for name, value in times.items() if value is not None}
    given |= {name: getattr(arguments, name) for name in ("seed", "moves_per_hour", "fall_back")}
    given |= {name: getattr(arguments, name) or "" for name in ("performance", "speeds")}
    given = recorded(cluster, models, policy=arguments.policy or ("fifo" if models is None else "jigsaw"), **given)
    checked = scheduler_of(given)  # what is wrong with the arguments is told before a file is made
    trace = demo.jobs_for(checked) if arguments.demo else ()
    with TemporaryDirectory() if arguments.demo else nullcontext(".") as folder:
        store = JournalStore(arguments.database or Path(folder, "jigsaw-serve.db"), ServiceLimits().lease_s)
        own: dict[str, Any] = {"budget_s": arguments.step_budget, "shadow": arguments.shadow}
        own |= {"clock": demo.FastClock()} if arguments.demo else {}
        service = Service(store, scheduler_of, given, **own)
        _serve(service, tokens, arguments.host, arguments.port, trace)
    return 0


def _require_tokens(host: str, tokens: Tokens | None) -> None:
    """Refuse to listen without tokens where others could ask."""
    is_own = host == "localhost"
    with suppress(ValueError):
        is_own = ip_address(host).is_loopback
    if tokens is None and not is_own:
        raise missing_option("tokens", f"others reach {host}: give --tokens FILE, or listen on 127.0.0.1")


def _serve(service: Service, tokens: Tokens | None, host: str, port: int, trace: Sequence[TraceJob]) -> None:
    """Serve until the end, and play jobs of a trace, if there are any; what was taken in is saved in any case."""
    from jigsaw_opt.serving.application import ServedPaths
    from jigsaw_opt.serving.connections import server_of
    from jigsaw_opt.serving.demo import AHEAD_US, TracePlayer
    from jigsaw_opt.system.interrupts import on_interrupt

    # After each write to a file or a socket a thread waits this long for one that computes: 5 ms unless it is said.
    sys.setswitchinterval(0.0005)
    over = threading.Event()

    def end() -> None:
        server.should_exit = True
        application.end()

    application = ServedPaths(service, tokens)
    server = server_of(application.app, service.limits.connections)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # signals are the program's
    service.on_end = end
    with create_server((host, port), family=AF_INET6 if ":" in host else AF_INET) as listening:
        service.start()
        port = listening.getsockname()[1]
        note(f"listening on {host}, port {port}" + f"; open http://{host}:{port}/" * bool(trace))
        if trace:
            threading.Thread(target=TracePlayer(service, trace, AHEAD_US).run, args=(over,), daemon=True).start()
        try:
            with on_interrupt(end):
                server.run(sockets=[listening])
        finally:
            over.set()
            service.stop()
    if service.failure:
        raise JigsawError(service.failure)
