"""The benchmark library: bundled instances, generators of more, estimated model profiles, best known values."""

from jigsaw_opt.instances.catalogue import BestKnown, RecordedRun, best_known, best_plan, best_proof, load, names, sets
from jigsaw_opt.instances.families import families, generate
from jigsaw_opt.instances.profiles import profile

__all__ = [
    "BestKnown",
    "RecordedRun",
    "best_known",
    "best_plan",
    "best_proof",
    "families",
    "generate",
    "load",
    "names",
    "profile",
    "sets",
]
