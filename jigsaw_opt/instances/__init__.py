"""The benchmark library: bundled instances, generators of more, estimated model profiles, best known values."""

from jigsaw_opt.instances.catalogue import BestKnown, best_known, load, names, sets
from jigsaw_opt.instances.families import families, generate
from jigsaw_opt.instances.profiles import profile

__all__ = ["BestKnown", "best_known", "families", "generate", "load", "names", "profile", "sets"]
