"""Solvers set against each other and the referee: small instances, extreme numbers, and `auto` against `greedy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from jigsaw_opt.instances import generate
from jigsaw_opt.instances.sources import instance_from
from tests.extreme_instances import enlarged, extreme_instance

from .contract import Campaign, Count, Part, Trial, first
from .documents import Json, small, tree, written
from .inside import Servant, servant, solved
from .referee import objective, verdict

SOLVERS = ("greedy", "search", "cpsat", "ilp", "auto")
_PATIENCE = 60.0
_SMALL, _EXTREME, _CYCLIC = 60, 32, 15
_LARGE = ("pod:1:objective=period:load=400", "pod/cyclic", "pod:7:objective=period:load=300")
_LARGE += ("pod:2:objective=period:load=400", "cluster/cyclic", "rack/tree-cyclic")


Case = tuple[str, Json, Mapping[str, float]]
"""What it is, an instance, and solvers with their seconds; more than one worker where there are but two solvers."""


def _smalls(campaign: Campaign) -> Iterator[Case]:
    """Instances of a handful of operations."""
    for number in range(campaign.times(_SMALL)):
        yield f"small instance {number}", small(campaign.random("solvers", number), 10), dict.fromkeys(SOLVERS, 1.0)


def _extremes(campaign: Campaign) -> Iterator[Case]:
    """Instances whose numbers reach the largest of a document, or whose schedules pass 64 bits."""
    for number in range(campaign.times(_EXTREME)):
        random = campaign.random("extreme", number)
        made = extreme_instance(random.getrandbits(31))
        if number % 4 == 0:
            goal = random.choice(("makespan", "weighted_completion", "period"))
            made = enlarged(generate("tiny", number, objective=goal))
        yield f"extreme instance {number}", tree(made), dict.fromkeys(SOLVERS, 1.0)


def _cyclics(campaign: Campaign) -> Iterator[Case]:
    """Cyclic instances, on which `auto` has as much time as `greedy` or more."""
    for name in _LARGE[: campaign.times(len(_LARGE))]:
        yield name, tree(instance_from(name)), {"greedy": 2.0, "auto": 5.0}
    for number in range(campaign.times(_CYCLIC)):
        random = campaign.random("cyclic", number)
        made = generate("server", random.randrange(10**4), objective="period", load=random.choice((100, 200, 300)))
        yield f"cyclic instance {number}", tree(made), {"greedy": 1.0, "auto": 1.0}


def _set_against(cases: Callable[[Campaign], Iterator[Case]], campaign: Campaign) -> Iterator[Trial]:
    with servant() as helper:
        for case in cases(campaign):
            yield from compared(helper, campaign, *case)


def compared(
    helper: Servant, campaign: Campaign, how: str, document: Json, seconds: Mapping[str, float]
) -> Iterator[Trial]:
    """Solvers on one instance: a trial each, and one of what they say together."""
    answers: dict[str, Json] = {}
    how, files = f"seed {campaign.seed}, {how}", (written(document, campaign.folder / "instance.json"),)
    for solver, limit in seconds.items():
        workers = 2 if len(seconds) == 2 else 1
        answer = helper.ask(solved, document, solver, limit, workers, campaign.seed, timeout=limit + _PATIENCE)
        wrong = unsound(document, answer)
        counts = {Count.ACCEPTED: int(bool(wrong) and "plan" in answer)}
        yield Trial(solver, wrong, how, answer.get("seconds", 0.0), counts=counts, files=files)
        if not wrong and "plan" in answer:
            answers[solver] = answer
    found, worse = contradictions(answers), worse_than_greedy(answers) if len(seconds) == 2 else ""
    yield Trial("together", first(*found, worse), how, counts={Count.CONTRADICTED: len(found)}, files=files)


def worse_than_greedy(answers: Mapping[str, Json]) -> str:
    """Whether `auto` is worse than `greedy`, which had no more time."""
    greedy, auto = (answers.get(name, {}).get("objective") for name in ("greedy", "auto"))
    worse = greedy is not None and (auto is None or auto > greedy)
    return f"auto has {auto}, greedy {greedy}" if worse else ""


def unsound(document: Json, answer: Json) -> str:
    """What is wrong with the answer of one solver; a refusal is none."""
    if "raised" in answer:
        return str(answer["raised"])
    plan = answer.get("plan")
    if plan is None:
        return ""
    if broken := verdict(document, plan):
        return f"a wrong plan: {broken}"
    value = objective(document, plan)
    if not answer["bound"] <= answer["objective"] == value:
        return f"objective {answer['objective']} and bound {answer['bound']} of a plan of {value}"
    return ""


def contradictions(answers: Mapping[str, Json]) -> list[str]:
    """What one solver has proven and the plan of another disproves."""
    found = []
    for one, proven in answers.items():
        for other, value in ((name, answer["objective"]) for name, answer in answers.items()):
            if value is not None and proven["status"] == "infeasible":
                found.append(f"{one} proves that there is no plan; {other} has one")
            elif value is not None and proven["bound"] > value:
                found.append(f"{one} proves {proven['bound']}; {other} has {value}")
    return found


PARTS = (
    Part("solvers", "no wrong plan, no bound above the plan of another solver", partial(_set_against, _smalls)),
    Part("overflow", "numbers up to 2^53 - 1 are exact or clearly refused", partial(_set_against, _extremes)),
    Part("auto", "auto is never worse than greedy", partial(_set_against, _cyclics)),
)
