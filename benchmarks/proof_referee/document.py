"""The canonical form of an instance, with all defaults written out, and its hash."""

from __future__ import annotations

import hashlib
import json

from .common import Document


def canonical(instance: Document) -> Document:
    """Return an instance with every default written out (specification: hash, canonical-task-graph)."""
    cluster = instance["cluster"]
    return {
        "horizon": "finite",
        **instance,
        "cluster": {
            "switches": [],
            **cluster,
            "servers": [{"fabric_latency_us": 0, **server} for server in cluster["servers"]],
            "links": [{"latency_us": 0, **link} for link in cluster.get("links", [])],
        },
        "models": {
            name: {"levels": list(range(1, len(model["segments"]) + 1)), "state_factor": 4, **model}
            for name, model in instance["models"].items()
        },
        "jobs": [_job(job) for job in instance["jobs"]],
    }


def _job(job: Document) -> Document:
    job = {"release_us": 0, "weight": 1, **job}
    if "shape" not in job:
        depth = job.get("depth", {"rule": "full"})
        return {**job, "depth": {"min_contributors": 1, **depth} if depth["rule"] == "free" else depth}
    shape = {"transfers": [], "edges": [], "barrier": "none", "holds": [], **job["shape"]}
    shape["slots"] = [{"memory": 0, **slot} for slot in shape["slots"]]
    shape["edges"] = [[*edge, 0][:3] for edge in shape["edges"]]
    if "stages" in shape.get("family", {}):
        shape["family"] = {"split": False, **shape["family"]}
    return {**job, "shape": shape}


def digest(instance: Document) -> str:
    """Return the hash of an instance in canonical form."""
    text = json.dumps(instance, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
