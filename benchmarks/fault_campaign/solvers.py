"""Solvers set against each other and the referee, on small random instances and on extreme numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jigsaw_opt.documents import encode_instance
from jigsaw_opt.instances import load

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .documents import LARGEST, Json, instance, job, models, servers
from .referee import objective, verdict
from .servant import Servant, servant

__all__ = ["EXTREME", "SMALL", "contradictions", "trials_of", "unsound"]

SOLVERS = ("greedy", "search", "cpsat", "ilp", "auto")
_SMALL, _EXTREME = 60, 12
_LIMIT, _PATIENCE = 1.0, 60.0

Answers = Mapping[str, Json]


def small(campaign: Campaign) -> Iterator[Trial]:
    """Instances of a handful of operations."""
    with servant() as helper:
        for number in range(campaign.times(_SMALL)):
            made = documents.small(campaign.random("solvers", number), 10)
            yield from trials_of(helper, "a small instance", made, f"seed {campaign.seed}, instance {number}", campaign)


def extreme(campaign: Campaign) -> Iterator[Trial]:
    """Instances whose numbers reach the largest of a document, on both horizons."""
    with servant() as helper:
        # Compiled functions count in 64 bits, so they have to be there.
        helper.ask("solved", json.loads(encode_instance(load("server/weighted"))), "search", 8.0, timeout=_PATIENCE)
        made = [(f"the largest numbers, {name}", document) for name, document in _largest()]
        for name, draw in (("extreme", documents.extreme), ("huge", documents.huge)):
            for number in range(campaign.times(_EXTREME)):
                made.append((f"seed {campaign.seed}, {name} {number}", draw(campaign.random(name, number))))
        for how, document in made:
            yield from trials_of(helper, "extreme numbers", document, how, campaign)


def trials_of(helper: Servant, fault: str, document: Json, how: str, campaign: Campaign) -> Iterator[Trial]:
    """Every solver on one instance, each a trial, and one of what they say together."""
    answers: dict[str, Json] = {}
    file = documents.written(document, campaign.folder / "instance.json")
    for solver in SOLVERS:
        answer = helper.ask("solved", document, solver, _LIMIT, 1, campaign.seed, timeout=_LIMIT + _PATIENCE)
        if answer.get("unsupported"):
            continue
        wrong = unsound(document, answer)
        counts = {Count.ACCEPTED: int(bool(wrong) and "plan" in answer)}
        seconds = answer.get("seconds", 0.0)
        yield Trial(f"{fault}: {solver}", wrong, how, seconds, counts=counts, files=(file,))
        if not wrong and "plan" in answer:
            answers[solver] = answer
    found = contradictions(answers)
    yield Trial(f"{fault}: together", first(*found), how, counts={Count.CONTRADICTED: len(found)}, files=(file,))


def unsound(document: Json, answer: Json) -> str:
    """What is wrong with the answer of one solver; a refusal is none."""
    if "raised" in answer:
        return str(answer["raised"])
    plan = answer.get("plan")
    if plan is None:
        return ""
    broken = verdict(document, plan)
    if broken:
        return f"a wrong plan: {broken}"
    value = objective(document, plan)
    if not answer["bound"] <= answer["objective"] == value:
        return f"objective {answer['objective']} and bound {answer['bound']} of a plan of {value}"
    return ""


def contradictions(answers: Answers) -> list[str]:
    """What one solver has proven and the plan of another disproves."""
    found = []
    for one, proven in answers.items():
        for other, reached in answers.items():
            value = reached["objective"]
            if value is not None and proven["status"] == "infeasible":
                found.append(f"{one} proves that there is no plan; {other} has one")
            elif value is not None and proven["bound"] > value:
                found.append(f"{one} proves {proven['bound']}; {other} has {value}")
    return found


def _largest() -> Iterator[tuple[str, Json]]:
    """Times, sizes, weights, releases and iterations at the end of what a document may state."""
    long = models(2, LARGEST, LARGEST, 0)
    several = [job(f"j{k}", 1 + k % 2, 2, weight=LARGEST) for k in range(3)]
    weighted: Json = {"horizon": "finite", "objective": "weighted_completion"}
    cyclic: Json = {"horizon": "cyclic", "objective": "period"}
    slow = [{**server, "fabric_bandwidth": 1, "fabric_latency_us": LARGEST} for server in servers()]
    yield "weighted", instance(several, nets=long, **weighted)
    yield "weighted, one job", instance([job(weight=LARGEST)], nets=long, **weighted)
    yield "makespan", instance(several, nets=long)
    yield "cyclic", instance(several, nets=long, **cyclic)
    yield "releases", instance([{**one, "release_us": LARGEST} for one in several], nets=long, **weighted)
    yield "transfers", instance(several, slow, models(2, 1, 1, LARGEST))
    yield "transfers, cyclic", instance(several, slow, models(2, 1, 1, LARGEST), **cyclic)
    yield "memory", instance(several, nets=models(2, 1, 1, LARGEST), **weighted)


def read(path: Path) -> Any:
    """A document in a file, or nothing where it is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


SMALL = Part("solvers", "no wrong plan, no bound above the plan of another solver", small)
EXTREME = Part("overflow", "numbers up to 2^53 - 1 are exact or clearly refused", extreme)
