"""Correct plans changed at random: the package's checker and the referee judge alike.

The referee knows plans that list all iterations. A phased plan that the checker accepts is put to it written out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from jigsaw_opt.documents import decode_instance
from tests.random_instances import with_licences, with_power_caps

from . import documents
from .contract import Campaign, Count, Part, Trial
from .documents import LARGEST, Json, tree
from .inside import Servant, hashed, judged, servant, solved, solved_phased
from .referee import sha256, verdict

_PLANS, _CHANGES, _PHASED_PLANS, _PHASED_CHANGES = 500, 40, 50, 20
_PATIENCE = 60.0


def listed(campaign: Campaign) -> Iterator[Trial]:
    """Plans of random small instances: as they are, changed, and for a changed instance."""
    with servant() as helper:
        for number in range(campaign.times(_PLANS)):
            random, how = campaign.random("changed", number), f"seed {campaign.seed}, plan {number}"
            instance = random.choice((documents.small, documents.scarce))(random)
            plan = (found := helper.ask(solved, instance, "greedy", 5.0, timeout=_PATIENCE)).get("plan")
            if "raised" in found:
                yield Trial("a plan of greedy", found["raised"], how)
            elif plan is not None:
                plans = [plan, *(changed(plan, random) for _ in range(_CHANGES))]
                yield from compared(helper, "a changed plan", instance, plans, how)
                yield from _other_instances(helper, instance, plan, random, how)
                yield from _under_caps(helper, instance, plan, random, how)


def phased(campaign: Campaign) -> Iterator[Trial]:
    """Phased plans of random small instances with up to 40 times the iterations: as they are, and changed."""
    with servant() as helper:
        for number in range(campaign.times(_PHASED_PLANS)):
            random, how = campaign.random("phased", number), f"seed {campaign.seed}, phased plan {number}"
            instance = random.choice((documents.small, documents.scarce))(random)
            while instance["horizon"] != "finite":
                instance = documents.small(random)
            for job in instance["jobs"]:
                job["iterations"] *= random.choice((1, 3, 10, 40))
            plan = (found := helper.ask(solved_phased, instance, timeout=_PATIENCE)).get("plan")
            if "raised" in found:
                yield Trial("a phased plan", found["raised"], how)
            elif plan is not None:
                plans = [plan, *(altered(plan, random) for _ in range(_PHASED_CHANGES))]
                yield from compared(helper, "a changed phased plan", instance, plans, how)


def compared(helper: Servant, fault: str, instance: Json, plans: list[Json], how: str) -> Iterator[Trial]:
    """Both verdicts on plans of one instance, of which the first is correct."""
    phased = "groups" in plans[0]
    answers = helper.ask(judged, instance, plans, timeout=_PATIENCE)
    if isinstance(answers, dict):
        yield Trial(fault, f"the checker: {answers['raised']}", how)
        return
    for place, (plan, answer) in enumerate(zip(plans, answers, strict=True)):
        own = (answer or verdict(instance, written_out(instance, plan))) if phased else verdict(instance, plan)
        counts = {Count.DOCUMENTS: 1, Count.ACCEPTED: int(bool(own) and not answer)}
        differ = f"the checker says {answer or 'correct'!r}, the referee {own or 'correct'!r}"
        kind = f"{fault}, {'wrong' if own else 'correct'}"
        yield Trial(kind, differ if bool(own) != bool(answer) else "", f"{how}, change {place}", counts=counts)


def _other_instances(helper: Servant, instance: Json, plan: Json, random: Random, how: str) -> Iterator[Trial]:
    """The plan judged for instances that differ in a number, whose hash it states."""
    for place in range(_CHANGES // 8):
        other, where = deepcopy(instance), f"{how}, instance {place}"
        _change_number(other, random)
        stated, answer = {**plan, "instance_sha256": sha256(other)}, helper.ask(hashed, other, timeout=_PATIENCE)
        wrong = "" if answer == stated["instance_sha256"] else f"another hash: {answer}"
        yield Trial("the hash of a changed instance", wrong, where)
        yield from compared(helper, "a plan of a changed instance", other, [stated], where)


def _under_caps(helper: Servant, instance: Json, plan: Json, random: Random, how: str) -> Iterator[Trial]:
    """The plan, as it is and changed, judged under power caps, and with licences, that it may exceed."""
    for place in range(_CHANGES // 8):
        for added, what in ((with_power_caps, "under power caps"), (with_licences, "with licences")):
            other = tree(added(decode_instance(json.dumps(instance)), random))
            stated, where = {**plan, "instance_sha256": sha256(other)}, f"{how}, {what} {place}"
            yield from compared(helper, f"a plan {what}", other, [stated, changed(stated, random)], where)


def _change_number(instance: Json, random: Random) -> None:
    """Another number in an instance, so that it stays valid."""
    kept = {"workers", "iterations", "mean_depth", *(["release_us"] if instance["horizon"] == "cyclic" else [])}
    holder, key = random.choice([place for place in _numbers(instance) if place[1] not in kept])
    may_be_0 = key in ("latency_us", "fabric_latency_us", "release_us", "balance", "gpu_memory")
    least = 0 if may_be_0 or key.endswith("_bytes") or holder[key] == 0 else 1
    holder[key] = random.choice((max(least, holder[key] - 1), holder[key] + 1, 2 * holder[key] + 1, least))


def written_out(instance: Json, plan: Json) -> Json:
    """A correct phased plan as one that lists all iterations."""
    jobs = {job["name"]: {"name": job["name"], "gpus": [], "iterations": []} for job in instance["jobs"]}
    for phase in (phase for group in plan["groups"] for phase in group["phases"]):
        for job in phase["jobs"]:
            listed = jobs[job["name"]]
            listed["gpus"] = job["gpus"]
            for r in range(phase["repeats"]):
                moved = deepcopy(job["iterations"])
                _later(moved, phase["start_us"] + r * phase["period_us"])
                listed["iterations"] += moved
    stated = {key: value for key, value in plan.items() if key != "groups"}
    return {**stated, "format": "jigsaw-plan/1", "period_us": None, "jobs": list(jobs.values())}


def _later(value: Any, by: int) -> None:
    for holder, key in list(_numbers({"all": value})):
        if key in ("start_us", "end_us"):
            holder[key] = max(0, holder[key] + by)


def changed(plan: Json, random: Random) -> Json:
    """A plan with one to three changes, of numbers, order, size, names or keys."""
    found = deepcopy(plan)
    for change in random.choices((_number, _number, _shift, _loosen, _gpu), k=random.choice((1, 1, 2, 3))):
        change(found, random)
    if random.random() < _ROUGH:
        random.choice((_exchange, _key))(found, random)
    return found


def altered(plan: Json, random: Random) -> Json:
    """A phased plan with changes of phases, or of any document; often with the makespan that it has then."""
    found = deepcopy(plan)
    for change in random.sample(_OF_PHASES, k=random.choice((0, 1, 2))):
        change(random.choice(found["groups"])["phases"], random)
    if random.random() < _ROUGH:
        return changed(found, random)
    ends = [
        phase["start_us"] + (phase["repeats"] - 1) * phase["period_us"] + max(holder[key] for holder, key in places)
        for group in found["groups"]
        for phase in group["phases"]
        if (places := [place for place in _numbers({"jobs": phase["jobs"]}) if place[1] == "end_us"])
    ]
    return {**found, "objective": max(*ends, found["bound"]), "status": "feasible"}


_ROUGH = 0.2
"""How often the form of the document is changed, too."""


def _number(plan: Json, random: Random) -> None:
    holder, key = random.choice(list(_numbers(plan)))
    one = holder[key]
    holder[key] = random.choice((one + 1, max(0, one - 1), 0, random.randint(0, 2 * one + 2), LARGEST))


def _shift(plan: Json, random: Random) -> None:
    """A whole job later or earlier: often still correct but for its objective."""
    _later(random.choice(_jobs(plan)), random.choice((-2, -1, 1, 2)))


def _loosen(plan: Json, random: Random) -> None:
    """A worse bound, which is still one."""
    plan["bound"], plan["status"] = random.randint(0, plan["bound"]), "feasible"


def _gpu(plan: Json, random: Random) -> None:
    places = [gpu for other in _jobs(plan) for gpu in other["gpus"]]
    gpus = random.choice(_jobs(plan))["gpus"]
    gpus[random.randrange(len(gpus))] = random.choice((*places, "s0/00", "s0/99", "x/0", "s0", "/"))


def _exchange(plan: Json, random: Random) -> None:
    """An element of a list taken out, put in twice, or in the place of another."""
    lists = [inner for holder in _objects(plan) for inner in holder.values() if isinstance(inner, list) and inner]
    found = random.choice(lists)
    one, other = random.randrange(len(found)), random.randrange(len(found))
    found[one : one + random.choice((0, 1))] = [deepcopy(found[other])] * random.choice((0, 1))


def _key(plan: Json, random: Random) -> None:
    """A key that is missing, one more, or a value of another kind."""
    holder = random.choice(list(_objects(plan)))
    key = random.choice(list(holder))
    kinds = (True, [holder[key]], str(holder[key]), None, 1.5, {})
    random.choice(
        (
            lambda: holder.pop(key),
            lambda: holder.update(more=1),
            lambda: holder.update({key: random.choice(kinds)}),
        )
    )()


def _split(phases: list[Json], random: Random) -> None:
    """One phase as two: correct where its repetitions do not reach into one another."""
    at = random.randrange(len(phases))
    phase, later = phases[at], deepcopy(phases[at])
    done = random.randint(1, max(1, phase["repeats"] - 1))
    later["start_us"] += done * phase["period_us"]
    later["repeats"], phase["repeats"] = max(1, phase["repeats"] - done), done
    phases.insert(at + 1, later)


def _move(phases: list[Json], random: Random) -> None:
    """A phase and those after it later, or earlier."""
    by = random.choice((-3, -1, 1, 2, 30))
    for phase in phases[random.randrange(len(phases)) :]:
        phase["start_us"] = max(0, phase["start_us"] + by)


def _pace(phases: list[Json], random: Random) -> None:
    """A longer or shorter period, or a repetition more or less."""
    phase, key = random.choice(phases), random.choice(("period_us", "repeats"))
    phase[key] = max(1, phase[key] + random.choice((-2, -1, 1, 5)))


_OF_PHASES: tuple[Callable[[list[Json], Random], None], ...] = (_split, _move, _pace)


def _jobs(plan: Json) -> list[Json]:
    """Jobs of a plan, or of all phases of one, which have GPUs left."""
    return [holder for holder in _objects(plan) if holder.get("gpus")]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _numbers(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    for holder in _objects(value):
        yield from ((holder, k) for k, inner in holder.items() if type(inner) is int and k not in ("seed", "seconds"))


PARTS = (
    Part("changed", "the checker and a referee of its own judge changed documents alike", listed),
    Part("phased", "what the checker accepts of changed phased plans keeps the rules written out", phased),
)
