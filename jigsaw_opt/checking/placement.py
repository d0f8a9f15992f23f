"""Where the workers sit (SPEC 4.1) and whether they fit there (SPEC 4.5)."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.checking.definitions import ModelTable
from jigsaw_opt.checking.violation import Findings
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.plan import JobPlan

__all__ = ["Memory", "Places", "check_placement"]


class Places:
    """The GPUs of a cluster by name."""

    def __init__(self, cluster: Cluster) -> None:
        self.servers = cluster.servers
        self._number = {server.name: number for number, server in enumerate(cluster.servers)}

    def server_of(self, gpu: str) -> int | None:
        """Number of the server that a GPU named ``server/index`` is in; None if there is no such GPU."""
        name, _, index = gpu.rpartition("/")
        number = self._number.get(name)
        plain = index.isascii() and index.isdigit() and (index == "0" or index[0] != "0")
        if number is None or not plain or len(index) > 16 or int(index) >= self.servers[number].gpus:
            return None
        return number


def check_placement(
    plan: JobPlan, table: ModelTable, places: Places, path: str, found: Findings
) -> Sequence[int] | None:
    """Existing, different GPUs of types that the model runs on; returns the server of each worker if all exist."""
    servers = [places.server_of(gpu) for gpu in plan.gpus]
    first: dict[str, int] = {}
    for worker, (gpu, number) in enumerate(zip(plan.gpus, servers, strict=True)):
        where = f"{path}.gpus[{worker}]"
        if number is None:
            found.add("4.1", where, f"there is no GPU {gpu!r}")
        elif places.servers[number].gpu_type not in table.types:
            found.add("4.1", where, f"the model does not run on type {places.servers[number].gpu_type!r}")
        if first.setdefault(gpu, worker) != worker:
            found.add("4.1", where, f"worker {first[gpu]} of the same job is on {gpu!r} too")
    known = [number for number in servers if number is not None]
    typed = all(places.servers[number].gpu_type in table.types for number in known)
    return known if typed and len(known) == len(servers) else None


class Memory:
    """What the workers placed on each GPU hold (SPEC 4.5)."""

    def __init__(self) -> None:
        self._state: dict[str, int] = {}
        self._activations: dict[str, int] = {}
        self._server: dict[str, Server] = {}

    def place(self, gpu: str, server: Server, state: int, activations: int) -> None:
        """Add a worker with its resident bytes and those of its deepest backward pass."""
        self._server[gpu] = server
        self._state[gpu] = self._state.get(gpu, 0) + state
        self._activations[gpu] = max(self._activations.get(gpu, 0), activations)

    def check(self, found: Findings) -> None:
        """Report every GPU that holds more than it has."""
        for gpu, server in self._server.items():
            held = self._state[gpu] + self._activations[gpu]
            if held > server.gpu_memory:
                found.add("4.5", "$.jobs", f"GPU {gpu} needs {held} bytes and has {server.gpu_memory}")
