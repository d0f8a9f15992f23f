"""Arguments about some jobs of an instance."""

from __future__ import annotations

from .common import Document, different, fields, kind, need, proven, with_jobs


@kind("none")
def _nothing(_: Document, __: Document) -> int:
    return 0


@kind("some jobs", jobs=list, argument=dict)
def _some_jobs(instance: Document, argument: Document) -> int:
    return proven(with_jobs(instance, argument["jobs"]), argument["argument"])


@kind("sum", parts=list)
def _sum(instance: Document, argument: Document) -> int:
    need(instance["objective"] == "weighted_completion", "there are sums of weighted_completion alone")
    for part in argument["parts"]:
        fields(part, {"jobs": list, "argument": dict}, "part")
    names = [name for part in argument["parts"] for name in part["jobs"]]
    different(names, [job["name"] for job in instance["jobs"]], "jobs")
    return sum(proven(with_jobs(instance, part["jobs"]), part["argument"]) for part in argument["parts"])
