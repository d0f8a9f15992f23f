"""Ways to forward packets while links fail, side by side: ``python benchmarks/rerouting.py``.

On every fabric, a number of links fail at once halfway through the flows, under four policies. ``--cases 2000`` instead
tries D2R on random small graphs beside brute force (`tests/routing`), ``--fabrics`` picks some of the fabrics, and
``--by-failures`` adds up over fabrics instead of over numbers of failures, and ``--draw FILE`` draws that (matplotlib).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.routing import MECHANISMS, Fabric, LinkChange, ReroutingOutcome, TrafficFlow, simulate_rerouting
from jigsaw_opt.routing.mechanisms import Mechanism


def fat_tree(k: int) -> Fabric:
    """Build three layers of switches with `k` ports, for `k ** 3 / 4` servers (Al-Fares et al., SIGCOMM'08)."""
    half = k // 2
    servers = [f"h{pod}.{e}.{h}" for pod in range(k) for e in range(half) for h in range(half)]
    edges = [f"e{pod}.{e}" for pod in range(k) for e in range(half)]
    middle = [f"a{pod}.{a}" for pod in range(k) for a in range(half)]
    cores = [f"c{a}.{c}" for a in range(half) for c in range(half)]
    pairs = [(name, f"e{name[1:].rpartition('.')[0]}") for name in servers]
    pairs += [(f"e{pod}.{e}", f"a{pod}.{a}") for pod in range(k) for e in range(half) for a in range(half)]
    pairs += [(f"a{pod}.{a}", f"c{a}.{c}") for pod in range(k) for a in range(half) for c in range(half)]
    return Fabric.alike(f"fat-tree-{k}", servers, (*edges, *middle, *cores), pairs)


def leaf_spine(spines: int, leaves: int, servers: int) -> Fabric:
    """Join every leaf to every spine."""
    ends = [f"h{leaf}.{s}" for leaf in range(leaves) for s in range(servers)]
    pairs = [(f"h{leaf}.{s}", f"leaf{leaf}") for leaf in range(leaves) for s in range(servers)]
    pairs += [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]
    others = [f"leaf{leaf}" for leaf in range(leaves)] + [f"spine{spine}" for spine in range(spines)]
    return Fabric.alike(f"leaf-spine-{spines}x{leaves}", ends, others, pairs)


def dragonfly(groups: int, routers: int, servers: int) -> Fabric:
    """Build groups whose routers are all joined, with one link between any two groups (Kim et al., ISCA'08).

    `groups, routers, servers`: groups, routers of each group, servers of each router. Links between groups go to
    routers in turn.
    """
    others = [f"r{g}.{r}" for g in range(groups) for r in range(routers)]
    ends = [f"h{g}.{r}.{s}" for g in range(groups) for r in range(routers) for s in range(servers)]
    pairs = [(name, f"r{name[1:].rpartition('.')[0]}") for name in ends]
    pairs += [(f"r{g}.{a}", f"r{g}.{b}") for g in range(groups) for a, b in combinations(range(routers), 2)]
    for one, other in combinations(range(groups), 2):
        pairs.append((f"r{one}.{(other - 1) % routers}", f"r{other}.{one % routers}"))
    return Fabric.alike(f"dragonfly-{groups}x{routers}", ends, others, pairs)


FABRICS: dict[str, Callable[[], Fabric]] = {
    "fat-tree-4": lambda: fat_tree(4),
    "fat-tree-8": lambda: fat_tree(8),
    "leaf-spine": lambda: leaf_spine(4, 16, 8),
    "dragonfly": lambda: dragonfly(9, 4, 2),
    "fat-tree-16": lambda: fat_tree(16),
}
FAILURES = (1, 2, 4, 8)
POLICIES = ("none", "avoid", "via", "via + limit")
FAIL_US = 100_000
"""When links fail: packets are sent from 0 to twice this time."""


@dataclass
class Sums:
    """Counts of packets over several runs."""

    sent: int = 0
    routable: int = 0
    delivered: int = 0
    lost: int = 0
    violations: int = 0
    links: int = 0
    least: int = 0
    recomputations: int = 0
    most_met: int = 0

    def add(self, outcome: ReroutingOutcome) -> None:
        """Count the packets of one run."""
        arrived = [p for p in outcome.packets if p.end == "arrived" and p.compliant and p.least_links]
        self.sent += len(outcome.packets)
        self.routable += outcome.routable
        self.delivered += len(arrived)
        self.lost += outcome.lost
        self.violations += outcome.violations
        self.links += sum(packet.used for packet in arrived)
        self.least += sum(packet.least_links or 0 for packet in arrived)
        self.recomputations += outcome.recomputations
        self.most_met = max(self.most_met, outcome.most_met)


def policy(kind: str, fabric: Fabric, source: str, target: str, rng: random.Random) -> RoutePolicy:
    """A policy of a kind, drawn for two ends: nodes avoided, a group to pass, and a limit of twelve links with it."""
    inner = sorted(set(fabric.graph.nodes) - set(fabric.ends)) or sorted(set(fabric.ends) - {source, target})
    top = [name for name in inner if name.startswith(("c", "spine"))] or inner
    if kind == "none":
        return RoutePolicy()
    if kind == "avoid":
        return RoutePolicy(avoid=tuple(rng.sample(top, max(1, len(top) // 4))))
    group = (tuple(rng.sample(top, max(1, len(top) // 4))),)
    return RoutePolicy(via=group, max_links=12 if kind == "via + limit" else None)


def traffic(fabric: Fabric, kind: str, count: int, rng: random.Random) -> list[TrafficFlow]:
    """Flows of four packets each between random ends, before, around and after the failures."""
    found = []
    for _ in range(count):
        source, target = rng.sample(fabric.ends, 2)
        start_us = rng.randrange(FAIL_US // 2)
        keeps = policy(kind, fabric, source, target, rng)
        found.append(TrafficFlow(source, target, keeps, start_us, 4, FAIL_US // 2))
    return found


def failing(fabric: Fabric, count: int, rng: random.Random) -> list[LinkChange]:
    """Links that fail at once; where ends are servers with one link, these stay."""
    single = {node for node, around in enumerate(fabric.graph.neighbours) if len(around) == 1}
    links = [name for name, ends in zip(fabric.graph.links, fabric.graph.ends) if not set(ends) & single]
    return [LinkChange(FAIL_US, name) for name in rng.sample(links, min(count, len(links)))]


def measured(
    fabric: Fabric, kind: str, failures: int, flows: int, seeds: int, mechanisms: Sequence[Mechanism]
) -> Iterator[tuple[str, ReroutingOutcome]]:
    """Each mechanism on the same flows and failures, for each seed."""
    for seed in range(seeds):
        rng = random.Random(f"{fabric.name} {kind} {failures} {seed}")
        traffic_now, changes = traffic(fabric, kind, flows, rng), failing(fabric, failures, rng)
        for mechanism in mechanisms:
            yield mechanism.name, simulate_rerouting(fabric, traffic_now, changes, mechanism)


def line(head: Sequence[str], sums: Sums) -> str:
    """A row of the table."""
    cells = [
        *head,
        f"{100 * sums.delivered / max(1, sums.routable):.2f}",
        f"{sums.links / max(1, sums.least):.3f}",
        f"{sums.lost}",
        f"{100 * sums.violations / max(1, sums.sent):.1f}",
        f"{sums.recomputations}",
        f"{sums.most_met}",
    ]
    return "| " + " | ".join(cells) + " |"


def draw(sums: dict[tuple[str, ...], Sums], path: Path) -> None:
    """The share that arrives over a compliant walk, a panel a policy, a line a mechanism."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3), layout="constrained")
    panels = figure.subplots(1, len(POLICIES), sharey=True)
    for kind, panel in zip(POLICIES, panels, strict=True):
        for mechanism, marker in zip(MECHANISMS, "osv^x", strict=True):
            found = [sums[str(count), kind, mechanism.name] for count in FAILURES]
            shares = [100 * each.delivered / max(1, each.routable) for each in found]
            panel.plot(range(len(FAILURES)), shares, marker=marker, label=mechanism.name)
        panel.set(title=kind, xlabel="failed links", xticks=range(len(FAILURES)), xticklabels=FAILURES, ylim=(0, 103))
    panels[0].set_ylabel("arrived, % of routable")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    figure.savefig(path, dpi=110)


def try_cases(count: int) -> None:
    """D2R on random cases beside brute force."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.routing.test_rerouting_properties import check_random_case

    begun, met = time.process_time(), 0
    for seed in range(count):
        met += check_random_case(seed)
    print(f"{count} cases, {met} packets met a failure, no disagreement, {time.process_time() - begun:.0f} s of CPU")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fabrics", nargs="+", choices=FABRICS, default=list(FABRICS))
    parser.add_argument("--flows", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--by-failures", action="store_true")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="a picture of shares by numbers of failures")
    parser.add_argument("--cases", type=int)
    arguments = parser.parse_args()
    if arguments.cases:
        try_cases(arguments.cases)
        return
    begun, by_failures = time.process_time(), arguments.by_failures or arguments.draw is not None
    sums: dict[tuple[str, ...], Sums] = {}
    for name, kind, failures in product(arguments.fabrics, POLICIES, FAILURES):
        fabric = FABRICS[name]()
        for mechanism, outcome in measured(fabric, kind, failures, arguments.flows, arguments.seeds, MECHANISMS):
            head = (str(failures), kind, mechanism) if by_failures else (name, kind, mechanism)
            sums.setdefault(head, Sums()).add(outcome)
    first = "failures" if by_failures else "fabric"
    print(f"| {first} | policy | mechanism | delivered % | stretch | lost | violations % | recomputations | most met |")
    print("|---|---|---|---|---|---|---|---|---|")
    for head in sums:
        print(line(head, sums[head]))
    if arguments.draw is not None:
        draw(sums, arguments.draw)
    print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
