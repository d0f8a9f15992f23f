"""Rules for an instance that the schema cannot state (specification: instance).

Its structure may be broken, so each check looks only at values of the right type. A part that is an object has checked
itself when it was made.
"""

from __future__ import annotations

from typing import Any

from jigsaw_opt.problem.rules.cluster import check_cluster
from jigsaw_opt.problem.rules.model import check_model
from jigsaw_opt.problem.rules.report import Place, Report, check_unique, dict_at, list_at, names_of, quoted
from jigsaw_opt.problem.rules.task_graph import check_task_graph

Json = dict[str, Any]
_OF_HORIZON = {"cyclic": ("pace_us",), "finite": ("deadline_us", "restart_us")}
"""Keys of a job that only one horizon has."""


def check_instance(tree: Json, place: Place, report: Report) -> None:
    """Report what is wrong with an instance besides its structure."""
    if isinstance(tree.get("cluster"), dict):
        check_cluster(tree["cluster"], (place, "cluster"), report)
    models, jobs, at = dict_at(tree, "models"), list_at(tree, "jobs"), (place, "jobs")
    for name, model in models.items():
        if isinstance(model, dict):
            check_model(model, ((place, "models"), name), report)
    check_unique(names_of(jobs, at), report)
    cluster = dict_at(tree, "cluster")
    policies, licences = (cluster.get(key, {}) for key in ("route_policies", "licences"))
    for index, job in enumerate(jobs):
        if not isinstance(job, dict):
            continue
        if "shape" not in job:
            _check_named(job.get("model"), tree.get("models"), "model", ((at, index), "model"), report)
            _check_progress(job, models, ((at, index), "depth"), report)
            _check_steps(job, models, (((at, index), "depth"), "levels"), report)
        elif isinstance(job["shape"], dict):
            check_task_graph(job["shape"], ((at, index), "shape"), report)
        if "route_policy" in job:
            _check_named(job["route_policy"], policies, "route policy", ((at, index), "route_policy"), report)
        _check_exchange(job, (at, index), report)
        held = [((((at, index), "licences"), k), name) for k, name in enumerate(list_at(job, "licences"))]
        check_unique(((where, name) for where, name in held if isinstance(name, str)), report)
        for where, name in held:
            _check_named(name, licences, "licence", where, report)
    _check_horizon(tree, jobs, at, report)


def _check_named(name: Any, known: Any, what: str, place: Place, report: Report) -> None:
    """Report a name in a job that means nothing; `known` is no object where it is not known what names mean."""
    if isinstance(known, dict) and isinstance(name, str) and name and name not in known:
        report.add_misspelt(place, f"no {what} is called {quoted(name)}", name, known)


def _check_progress(job: Json, models: Json, place: Place, report: Report) -> None:
    """Report a limit of progress where the model does not say what iterations are worth (specification: progress)."""
    name = job.get("model")
    model = dict_at(models, name) if isinstance(name, str) else {}
    if "min_progress" in dict_at(job, "depth") and model and "efficiency" not in model:
        told = f"model {quoted(str(name))} does not say what iterations are worth"
        report.add((place, "min_progress"), told, 'give the model an "efficiency"', code="contradiction")


def _check_steps(job: Json, models: Json, place: Place, report: Report) -> None:
    """Report levels of a staircase that are not one for each worker, ascending to the deepest."""
    levels, name = list_at(dict_at(job, "depth"), "levels"), job.get("model")
    model = dict_at(models, name) if isinstance(name, str) else {}
    workers, deepest = job.get("workers"), len(list_at(model, "levels") or list_at(model, "segments"))
    if not levels or not deepest or any(type(one) is not int for one in (workers, *levels)):
        return
    if len(levels) != workers or levels != sorted(levels) or levels[-1] != deepest:
        told = f"must be {workers} levels, one for each worker, which never fall, the last one {deepest}"
        report.add(place, told, code="mismatch")


def _check_exchange(job: Json, place: Place, report: Report) -> None:
    """Report several steps between two exchanges with levels that may differ: steps have no levels of their own."""
    every, rule = dict_at(job, "exchange").get("every"), dict_at(job, "depth").get("rule", "full")
    if type(every) is int and every > 1 and rule != "full":
        told = 'is 1 unless every worker goes to full depth, with the rule "full"'
        report.add(((place, "exchange"), "every"), told, code="contradiction")


def _check_horizon(tree: Json, jobs: list[Any], place: Place, report: Report) -> None:
    horizon, objective = tree.get("horizon", "finite"), tree.get("objective")
    if horizon == "finite" and objective == "period":
        told = '"period" is for the horizon "cyclic"'
        report.add(("$", "objective"), told, 'set "horizon": "cyclic"', code="contradiction")
    for other, keys in _OF_HORIZON.items() if horizon in ("finite", "cyclic") else ():
        for index, job in enumerate(jobs):
            for key in keys if isinstance(job, dict) and other != horizon else ():
                if key in job:
                    report.add(((place, index), key), f"is for the horizon {quoted(other)}", code="contradiction")
    if horizon != "cyclic":
        return
    if objective in ("makespan", "weighted_completion"):
        told = f'{quoted(objective)} is for the horizon "finite"'
        report.add(("$", "objective"), told, 'set "objective": "period"', code="contradiction")
    for index, job in enumerate(jobs):
        release = job.get("release_us", 0) if isinstance(job, dict) else 0
        if type(release) is int and release > 0:
            told = f'must be 0 with the horizon "cyclic"; is {release}'
            report.add(((place, index), "release_us"), told, code="contradiction")
