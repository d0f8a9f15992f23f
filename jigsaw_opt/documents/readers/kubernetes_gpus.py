"""GPUs that a pod of Kubernetes asks for, as its scheduler counts them."""

from __future__ import annotations

import re

from jigsaw_opt.documents.readers.tree import Tree

__all__ = ["PodNeeds", "counts_whole_gpus"]

_WHOLE = re.compile(r"[^/]+/gpu|gpu\.intel\.com/(?:i915|xe)|volcano\.sh/gpu-number")
_PART = re.compile(r"[^/]+/(?:mig-|vcuda|(?=.*gpu)).*|gpu\.intel\.com/.*", re.DOTALL)
_NO_GPU = re.compile(r"monitoring$")


def counts_whole_gpus(resource: str) -> bool:
    """Return whether amounts of a resource are numbers of GPUs."""
    return _WHOLE.fullmatch(resource) is not None


class PodNeeds:
    """The GPUs of a pod, and how they were counted.

    Limits count, and requests where there is no limit. A pod needs what its containers need together with sidecars,
    which are init containers that stay, or what an earlier init container needs, if that is more. A container that asks
    for shares of GPUs alone counts with one GPU, however many: their amounts are no numbers of GPUs.

    `shares`: names of the resources that are shares of GPUs, of containers that ask for no number of GPUs. `beside`:
    names of those of containers that ask for a number of GPUs too. `claims`: whether devices are also claimed by
    `resourceClaims`, which say nothing of how many.
    """

    def __init__(self, spec: Tree) -> None:
        self.shares: set[str] = set()
        self.beside: set[str] = set()
        self.spec = spec
        self.claims = bool(spec.at("resourceClaims"))
        sidecars = most = 0
        for container in spec.at("initContainers").items():
            need = self._of_container(container)
            most = max(most, sidecars + need)
            if container.at("restartPolicy").value == "Always":
                sidecars += need
        together = sum(self._of_container(container) for container in spec.at("containers").items())
        self.gpus = max(most, sidecars + together)

    def _of_container(self, container: Tree) -> int:
        limits, requests = container.at("resources", "limits"), container.at("resources", "requests")
        asked = {key: requests.at(key) for key in requests.names()} | {key: limits.at(key) for key in limits.names()}
        whole = sum(amount.count(0) for key, amount in asked.items() if counts_whole_gpus(key))
        parts = {key: amount for key, amount in asked.items() if _PART.fullmatch(key) and not counts_whole_gpus(key)}
        parts = {key: part for key, part in parts.items() if str(part.value) != "0" and not _NO_GPU.search(key)}
        (self.beside if whole else self.shares).update(parts)
        return whole or int(bool(parts))
