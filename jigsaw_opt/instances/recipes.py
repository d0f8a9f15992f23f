"""Recipes of the families of instances; a family is a tuple of recipes, and a new one is a new entry here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jigsaw_opt.problem.depth import Depth, FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Objective

GBIT = 125_000_000
"""Bytes per second of a gigabit per second."""
_PCIE = 12_000_000_000
FULL, STAIRCASE, FREE = FullDepth(), StaircaseDepth(), FreeDepth()
COVERED, BALANCED, SHALLOW = FreeDepth(min_contributors=2), FreeDepth(balance=1), FreeDepth(mean_depth="1/2")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of an instance: everything but the seed.

    `servers, gpus`: number of servers, and of GPUs in each. `gpu_types`: types of the servers, dealt out in turn.
    `load`: workers of all jobs per 100 GPUs, rounded down, though at least one worker. `fabric`: bytes per second
    between GPUs of a server; None for what their type has. `bandwidth, latency_us`: bytes per second and latency in
    microseconds of a server's link. `networks`: networks to draw from, as (name, batch); empty for small made-up
    models. `segments`: least and largest number of segments of a model. `widths`: numbers of workers of a job to draw
    from. `iterations`: least and largest number of iterations of a job. `deal_depths`: whether jobs take the depth
    rules in turn, so that an instance has all of them. `releases`: whether jobs are released over time; not on a cyclic
    horizon, where none may be. `tight_memory`: whether the GPUs of a server have no more memory than one hidden
    placement needs there. `spare_memory`: memory of all GPUs of a type beyond what one hidden placement needs there, in
    percent of that; None for the memory on the data sheet. `longest_job`: longest that a job may take alone, in percent
    of the mean work of a GPU; longer jobs lose iterations. None leaves all of them.
    """

    name: str
    topology: str
    servers: int
    gpus: int
    gpu_types: tuple[str, ...] = ("v100",)
    load: int = 100
    fabric: int | None = None
    bandwidth: int = 100 * GBIT
    latency_us: int = 10
    networks: tuple[tuple[str, int], ...] = ()
    segments: tuple[int, int] = (4, 4)
    widths: tuple[int, ...] = (1, 2, 4)
    iterations: tuple[int, int] = (2, 4)
    depths: tuple[Depth, ...] = (STAIRCASE,)
    deal_depths: bool = False
    objective: Objective = "makespan"
    releases: bool = False
    tight_memory: bool = False
    spare_memory: int | None = None
    longest_job: int | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """Types that servers have, each once."""
        return tuple(dict.fromkeys(self.gpu_types[: self.servers]))


def _tiny() -> tuple[Recipe, ...]:
    one = Recipe(
        "plain",
        "separate",
        servers=1,
        gpus=2,
        load=250,
        fabric=_PCIE,
        bandwidth=40 * GBIT,
        latency_us=7,
        segments=(2, 3),
        widths=(1, 2),
        iterations=(1, 3),
    )
    two = replace(one, topology="star", servers=2, gpus=1)
    four = replace(two, gpus=2, load=200, iterations=(1, 2))
    return (
        one,
        replace(one, name="full", depths=(FULL,)),
        replace(one, name="free", depths=(FREE,)),
        replace(one, name="weighted", objective="weighted_completion", depths=(STAIRCASE, FREE)),
        replace(one, name="cyclic", objective="period", iterations=(1, 2)),
        replace(one, name="tight-memory", tight_memory=True, depths=(STAIRCASE, FREE)),
        replace(one, name="releases", releases=True, objective="weighted_completion"),
        replace(two, name="two-servers"),
        replace(two, name="link-bound", bandwidth=10 * GBIT, widths=(2,), depths=(STAIRCASE, FREE)),
        replace(two, name="mixed-types", gpu_types=("v100", "a100"), depths=(STAIRCASE, FREE)),
        replace(two, name="mixed-weighted", gpu_types=("v100", "a100"), objective="weighted_completion"),
        replace(two, name="covered", load=300, widths=(2,), depths=(COVERED, FREE), segments=(2, 2)),
        replace(two, name="balanced", topology="line", widths=(2,), depths=(BALANCED,), segments=(3, 3)),
        replace(two, name="long", load=150, iterations=(3, 3), segments=(2, 2), depths=(STAIRCASE, FREE)),
        replace(two, name="shallow", depths=(SHALLOW,), segments=(4, 4), releases=True),
        replace(
            two,
            name="cyclic-link-bound",
            objective="period",
            bandwidth=10 * GBIT,
            widths=(2,),
            iterations=(1, 2),
            segments=(2, 2),
        ),
        replace(two, name="ring", topology="ring", servers=3, load=200, widths=(1, 2, 3), iterations=(1, 2)),
        replace(two, name="line", topology="line", servers=3, load=200, widths=(2, 3), iterations=(1, 2)),
        replace(four, name="four-gpus", widths=(1, 2, 3)),
        replace(four, name="wide", widths=(4, 2), depths=(STAIRCASE, FREE)),
        replace(four, name="four-mixed", gpu_types=("v100", "a100"), tight_memory=True),
        replace(four, name="four-cyclic", objective="period", depths=(STAIRCASE, FREE), load=175, iterations=(1, 1)),
        replace(four, name="tree", topology="tree", servers=4, gpus=1, load=150),
        replace(four, name="oversubscribed", topology="separate", servers=1, load=300, segments=(2, 2)),
    )


_VISION = (("resnet50", 64), ("vgg16", 32))
_LANGUAGE = (("bert_large", 16), ("gpt2_small", 4), ("gpt2_medium", 2))
BATCHES: Mapping[str, int] = dict((*_VISION, *_LANGUAGE))
"""Samples a worker and iteration that a network has where nobody says."""


def _stressed(base: Recipe) -> tuple[Recipe, ...]:
    """Return the ways in which every family above `tiny` is made hard."""
    types = ("v100", "a100")
    wide = (2, base.gpus + 2, 2 * base.gpus)
    return (
        base,
        replace(base, name="oversubscribed", load=300, depths=(STAIRCASE, FREE)),
        replace(base, name="link-bound", bandwidth=25 * GBIT, latency_us=20, load=250, widths=wide),
        replace(base, name="mixed-types", gpu_types=types, load=250, depths=(STAIRCASE, FULL), releases=True),
        replace(base, name="weighted", objective="weighted_completion", load=200, releases=True, depths=(FREE,)),
        replace(base, name="cyclic", objective="period", load=200, iterations=(1, 3)),
        replace(base, name="tight-memory", tight_memory=True, load=250, depths=(STAIRCASE, FREE, BALANCED)),
    )


def _server() -> tuple[Recipe, ...]:
    base = Recipe("plain", "separate", servers=1, gpus=8, load=200, networks=_VISION + _LANGUAGE, segments=(4, 6))
    pair = replace(base, topology="star", servers=2, gpus=4, widths=(1, 2, 4, 6), iterations=(2, 6))
    nodes = replace(pair, servers=4, gpu_types=("a100",))
    weighted = replace(nodes, objective="weighted_completion", load=200)
    types = ("v100", "a100")
    return (
        base,
        replace(base, name="full", depths=(FULL,)),
        *_stressed(pair)[1:],
        replace(nodes, name="free", depths=(FREE, COVERED, SHALLOW), load=200),
        replace(nodes, name="heavy", load=250, widths=(1, 2, 4), iterations=(2, 2)),
        replace(nodes, name="direct", topology="ring", bandwidth=25 * GBIT, load=200),
        replace(nodes, name="cyclic-mixed", objective="period", gpu_types=types, load=200, iterations=(1, 2)),
        replace(weighted, name="weighted-link-bound", bandwidth=25 * GBIT, widths=(2, 6, 8)),
        replace(base, name="pcie", fabric=_PCIE, load=250),
        replace(pair, name="demo", networks=_VISION, segments=(4, 4), widths=(2, 3), iterations=(1, 2), load=200),
        replace(pair, name="fast", gpu_types=("h200",), servers=2, gpus=8, widths=(2, 4, 8), load=200),
    )


def _rack() -> tuple[Recipe, ...]:
    base = Recipe(
        "plain",
        "star",
        servers=4,
        gpus=8,
        load=150,
        networks=_VISION + _LANGUAGE,
        segments=(4, 6),
        widths=(1, 2, 4, 8, 12),
    )
    large = replace(base, topology="tree", servers=8, gpu_types=("a100",))
    return (
        *_stressed(base),
        replace(large, name="tree", load=200, widths=(2, 4, 8, 16)),
        replace(
            large,
            name="tree-link-bound",
            bandwidth=25 * GBIT,
            load=150,
            widths=(2, 4, 12, 16),
            depths=(STAIRCASE, FREE),
        ),
        replace(large, name="tree-cyclic", objective="period", gpu_types=("a100", "h200"), load=200),
    )


def _pod() -> tuple[Recipe, ...]:
    widths = (1, 2, 4, 8, 16, 32)
    base = Recipe(
        "plain", "tree", servers=32, gpus=8, load=150, gpu_types=("a100",), networks=_VISION + _LANGUAGE, widths=widths
    )
    return _stressed(base)[:6]


def _cluster() -> tuple[Recipe, ...]:
    types = ("v100", "a100", "a100", "h200")
    base = Recipe(
        "plain",
        "tree",
        servers=128,
        gpus=8,
        load=150,
        gpu_types=types,
        networks=_VISION + _LANGUAGE,
        widths=(1, 2, 4, 8, 16, 32, 64),
        iterations=(2, 3),
    )
    return (
        base,
        replace(base, name="oversubscribed", load=250, depths=(STAIRCASE, FREE)),
        replace(base, name="weighted", objective="weighted_completion", load=200, releases=True),
        replace(base, name="cyclic", objective="period", load=200, iterations=(1, 2)),
        replace(base, name="link-bound", bandwidth=25 * GBIT, latency_us=20, load=200, widths=(4, 8, 16, 32, 64)),
    )


FAMILIES: Mapping[str, tuple[Recipe, ...]] = {
    "tiny": _tiny(),
    "server": _server(),
    "rack": _rack(),
    "pod": _pod(),
    "cluster": _cluster(),
}
"""Recipes by family; seed ``s`` takes recipe ``s`` modulo their number, and each recipe has a bundled instance."""
